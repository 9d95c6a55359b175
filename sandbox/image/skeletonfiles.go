package image

import "io/fs"

// skeletonVersion is part of the fingerprint of every skeleton: it changes
// with the tables below, so that a new release does not use old ones.
const skeletonVersion = "1"

// sandboxUser is the ordinary user of host:latest.
const sandboxUser = 1000

// skeletonDirs are the directories of host:latest that are not the host's.
var skeletonDirs = []struct {
	path string
	mode fs.FileMode
	uid  int
}{
	{path: "boot", mode: 0o755},
	{path: "etc", mode: 0o755},
	{path: "etc/opt", mode: 0o755},
	{path: "etc/pam.d", mode: 0o755},
	{path: "etc/profile.d", mode: 0o755},
	{path: "home", mode: 0o755},
	{path: "home/sandbox", mode: 0o755, uid: sandboxUser},
	{path: "media", mode: 0o755},
	{path: "mnt", mode: 0o755},
	{path: "opt", mode: 0o755},
	{path: "root", mode: 0o700},
	{path: "run", mode: 0o755},
	{path: "run/lock", mode: 0o777 | fs.ModeSticky},
	{path: "srv", mode: 0o755},
	{path: "usr", mode: 0o755},
	{path: "var", mode: 0o755},
	{path: "var/cache", mode: 0o755},
	{path: "var/lib", mode: 0o755},
	{path: "var/log", mode: 0o755},
	{path: "var/mail", mode: 0o775 | fs.ModeSetgid},
	{path: "var/opt", mode: 0o755},
	{path: "var/spool", mode: 0o755},
	{path: "var/tmp", mode: 0o777 | fs.ModeSticky},
}

// skeletonLinks are the symbolic links of host:latest that are not the host's.
var skeletonLinks = map[string]string{
	"etc/mtab": "../proc/self/mounts",
	"var/lock": "/run/lock",
	"var/run":  "/run",
}

// skeletonFiles are written anew instead of copied, because the host's own
// tell about its users, or may hold secrets. Names are relative to /etc.
var skeletonFiles = []struct {
	name    string
	mode    fs.FileMode
	content string
}{
	{name: "passwd", mode: 0o644, content: `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
games:x:5:60:games:/usr/games:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`},
	{name: "group", mode: 0o644, content: `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
mail:x:8:
man:x:12:
kmem:x:15:
sudo:x:27:
audio:x:29:
www-data:x:33:
backup:x:34:
shadow:x:42:
utmp:x:43:
video:x:44:
staff:x:50:
games:x:60:
users:x:100:
sandbox:x:1000:
nogroup:x:65534:
`},
	{name: "shadow", mode: 0o600, content: `root:*:19000:0:99999:7:::
sandbox:*:19000:0:99999:7:::
nobody:*:19000:0:99999:7:::
`},
	{name: "gshadow", mode: 0o600, content: "root:*::\nsandbox:*::\nnogroup:*::\n"},
	{name: "nsswitch.conf", mode: 0o644, content: `passwd:    files
group:     files
shadow:    files
hosts:     files dns
networks:  files
protocols: files
services:  files
ethers:    files
rpc:       files
`},
	{name: "host.conf", mode: 0o644, content: "multi on\n"},
	{name: "pam.d/other", mode: 0o644, content: `# Root may become anyone; nobody has a password.
auth     sufficient pam_rootok.so
auth     required   pam_deny.so
account  required   pam_permit.so
password required   pam_deny.so
session  required   pam_permit.so
`},
	{name: "shells", mode: 0o644, content: "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"},
	{name: "profile", mode: 0o644, content: `if [ "$(id -u)" -eq 0 ]; then
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
else
  PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
fi
export PATH
if [ "${BASH-}" ] && [ "$BASH" != /bin/sh ] && [ -f /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
for i in /etc/profile.d/*.sh; do
  if [ -r "$i" ]; then . "$i"; fi
done
unset i
`},
	{name: "bash.bashrc", mode: 0o644, content: `[ -z "${PS1-}" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
`},
	{name: "/root/.profile", mode: 0o644, content: "if [ \"${BASH-}\" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n"},
	{name: "/root/.bashrc", mode: 0o644, content: `alias ls='ls --color=auto'
alias ll='ls -l'
`},
}
