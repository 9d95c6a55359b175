package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// action is one run of a client.
type action struct {
	argv  []string
	stdin string
}

// clientCopier is a client that carries files and folders. A folder is
// carried to a name that nothing has yet.
type clientCopier struct {
	name             string
	tools            []string
	put, get         func(s *stage, from, to string) action // a file
	putTree, getTree func(s *stage, from, to string) action // a folder; nil: as a file
	// few carries a tenth of the files.
	few bool
}

func clientCopiers() []clientCopier {
	return []clientCopier{
		scpCopier("scp"),
		scpCopier("scp", "-O"), // the old protocol
		{
			name: "sftp", tools: []string{"sftp"},
			put:     func(s *stage, from, to string) action { return s.sftp("put " + from + " " + to) },
			get:     func(s *stage, from, to string) action { return s.sftp("get " + from + " " + to) },
			putTree: func(s *stage, from, to string) action { return s.sftp("put -r " + from + " " + to) },
			getTree: func(s *stage, from, to string) action { return s.sftp("get -r " + from + " " + to) },
		},
		pscpCopier("-sftp"),
		pscpCopier("-scp"),
		{
			name: "psftp", tools: []string{"psftp", "puttygen"},
			put:     func(s *stage, from, to string) action { return s.psftp("put " + from + " " + to) },
			get:     func(s *stage, from, to string) action { return s.psftp("get " + from + " " + to) },
			putTree: func(s *stage, from, to string) action { return s.psftp("put -r " + from + " " + to) },
			getTree: func(s *stage, from, to string) action { return s.psftp("get -r " + from + " " + to) },
		},
		{
			name: "rsync", tools: []string{"rsync"},
			put:     func(s *stage, from, to string) action { return s.rsync(from, "box:"+to) },
			get:     func(s *stage, from, to string) action { return s.rsync("box:"+from, to) },
			putTree: func(s *stage, from, to string) action { return s.rsync(from+"/", "box:"+to+"/") },
			getTree: func(s *stage, from, to string) action { return s.rsync("box:"+from+"/", to+"/") },
		},
		{
			name: "lftp", tools: []string{"lftp"},
			put:     func(s *stage, from, to string) action { return s.lftp("put " + from + " -o " + to) },
			get:     func(s *stage, from, to string) action { return s.lftp("get " + from + " -o " + to) },
			putTree: func(s *stage, from, to string) action { return s.lftp("mirror -R " + from + " " + to) },
			getTree: func(s *stage, from, to string) action { return s.lftp("mirror " + from + " " + to) },
		},
	}
}

func scpCopier(line ...string) clientCopier {
	scp := func(s *stage, from, to string) action {
		return action{argv: append(append([]string{}, line...), "-q", "-r", "-F", s.config, from, to)}
	}
	return clientCopier{
		name: strings.Join(line, ""), tools: []string{"scp"},
		put: func(s *stage, from, to string) action { return scp(s, from, "box:"+to) },
		get: func(s *stage, from, to string) action { return scp(s, "box:"+from, to) },
	}
}

func pscpCopier(protocol string) clientCopier {
	pscp := func(s *stage, from, to string) action {
		return action{argv: append(append([]string{"pscp", "-q", "-r", protocol, "-P", s.port}, s.putty()...), from, to)}
	}
	return clientCopier{
		name: "pscp" + protocol, tools: []string{"pscp", "puttygen"},
		put: func(s *stage, from, to string) action { return pscp(s, from, "box@127.0.0.1:"+to) },
		get: func(s *stage, from, to string) action { return pscp(s, "box@127.0.0.1:"+from, to) },
		// Folders go into others.
		putTree: func(s *stage, from, to string) action { return pscp(s, from, "box@127.0.0.1:"+path.Dir(to)) },
		getTree: func(s *stage, from, to string) action { return pscp(s, "box@127.0.0.1:"+from, filepath.Dir(to)) },
		// It leaves Nagle's algorithm on and sends each file in three parts, so
		// that one takes 40 ms; psftp carries them all.
		few: true,
	}
}

func (s *stage) sftp(command string) action {
	return action{argv: []string{"sftp", "-q", "-F", s.config, "-b", "-", "box"}, stdin: command + "\n"}
}

func (s *stage) psftp(command string) action {
	argv := append([]string{"psftp", "-P", s.port}, s.putty()...)
	return action{argv: append(argv, "-b", "/dev/stdin", "box@127.0.0.1"), stdin: command + "\n"}
}

func (s *stage) rsync(from, to string) action {
	return action{argv: []string{"rsync", "-a", "-e", "ssh -F " + s.config, from, to}}
}

func (s *stage) lftp(command string) action {
	return action{argv: []string{"lftp", "-c", "set cmd:fail-exit yes; set net:max-retries 1; set xfer:log no; " +
		"set sftp:connect-program \"ssh -a -x -F " + s.config + "\"; open -u box, sftp://box:" + s.port + "; " + command}}
}

// curlCopier is libssh2, as curl uses it. Debian 12's has no algorithm for the
// authentication of packets in common with a server that was not told to be
// compatible.
func curlCopier() clientCopier {
	curl := func(s *stage, more ...string) action {
		blob := sha256.Sum256(s.host.Marshal())
		return action{argv: append([]string{"curl", "-sS", "--fail", "--user", "box:", "--key", s.key, "--pubkey", s.key + ".pub",
			"--hostpubsha256", base64.StdEncoding.EncodeToString(blob[:]), "--ftp-create-dirs"}, more...)}
	}
	at := func(s *stage, path string) string {
		return (&url.URL{Scheme: "sftp", Host: "127.0.0.1:" + s.port, Path: path}).String()
	}
	// All of a folder over one connection.
	tree := func(s *stage, up bool, local, remote string) action {
		var list strings.Builder
		_ = fs.WalkDir(os.DirFS(s.small), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				option := "output"
				if up {
					option = "upload-file"
				}
				fmt.Fprintf(&list, "url = %q\n%s = %q\n", at(s, remote+"/"+name), option, filepath.Join(local, name))
			}
			return err
		})
		a := curl(s, "--create-dirs", "-K", "-")
		a.stdin = list.String()
		return a
	}
	return clientCopier{
		name: "curl", tools: []string{"curl"},
		put:     func(s *stage, from, to string) action { return curl(s, "-T", from, at(s, to)) },
		get:     func(s *stage, from, to string) action { return curl(s, "-o", to, at(s, from)) },
		putTree: func(s *stage, from, to string) action { return tree(s, true, from, to) },
		getTree: func(s *stage, from, to string) action { return tree(s, false, to, from) },
	}
}

// carry is the part of the story that is about files.
func (s *stage) carry(t *testing.T, c clientCopier) {
	needTools(t, c.tools...)
	if c.name == "curl" {
		needSFTP(t, s)
	}
	do := func(t *testing.T, a action) {
		t.Helper()
		s.run(t, strings.NewReader(a.stdin), a.argv[0], a.argv[1:]...)
	}
	if c.putTree == nil {
		c.putTree, c.getTree = c.put, c.get
	}
	here := t.TempDir()

	t.Run("64 MiB both ways", func(t *testing.T) {
		remote, back := "/workspace/"+c.name+".bulk", filepath.Join(here, "bulk")
		do(t, c.put(s, s.bulk, remote))
		if got := strings.TrimSpace(s.inside(t, "sha256sum <"+remote+" | cut -c1-64")); got != s.bulkSum {
			t.Errorf("what arrived is %q, want %q", got, s.bulkSum)
		}
		do(t, c.get(s, remote, back))
		b, err := os.ReadFile(back)
		if err != nil || sum(b) != s.bulkSum {
			t.Errorf("what came back is not what was sent: %d bytes, %v", len(b), err)
		}
		os.Remove(back)
		s.inside(t, "rm "+remote)
	})

	t.Run("1000 files both ways", func(t *testing.T) {
		from, want := s.small, s.treeID
		if c.few {
			from = filepath.Join(s.small, "d0")
			want = localTree(t, from)
		}
		folder, back := "/workspace/"+c.name, filepath.Join(here, filepath.Base(from))
		remote := folder + "/" + filepath.Base(from)
		s.inside(t, "mkdir "+folder)
		do(t, c.putTree(s, from, remote))
		if got := strings.TrimSpace(s.inside(t, treeCommand(remote))); got != want {
			t.Errorf("what arrived is not what was sent: %s", s.inside(t, "cd "+folder+"; find . -type f | wc -l; ls -la . *"))
		}
		do(t, c.getTree(s, remote, back))
		if got := localTree(t, back); got != want {
			t.Error("what came back is not what was sent")
		}
		s.inside(t, "rm -r "+folder)
	})
}

// needSFTP skips where this curl was built without ssh.
func needSFTP(t *testing.T, s *stage) {
	t.Helper()
	if _, protocols, _ := strings.Cut(s.run(t, nil, "curl", "--version"), "Protocols:"); !strings.Contains(protocols, " sftp") {
		t.Skip("needs a curl with sftp")
	}
}

// pushAndPull: a repository in the sandbox.
func (s *stage) pushAndPull(t *testing.T) {
	needTools(t, "git")
	here := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		return s.run(t, nil, "env", append([]string{"GIT_SSH_COMMAND=ssh -F " + s.config, "GIT_CONFIG_GLOBAL=/dev/null",
			"git", "-c", "user.name=box", "-c", "user.email=box@example.org", "-c", "gc.auto=0"}, args...)...)
	}
	s.inside(t, "git init -q --bare /workspace/repo.git && git -C /workspace/repo.git symbolic-ref HEAD refs/heads/main")
	one, two := filepath.Join(here, "one"), filepath.Join(here, "two")
	git("clone", "-q", "box:/workspace/repo.git", one)
	if err := os.CopyFS(filepath.Join(one, "small"), os.DirFS(s.small)); err != nil {
		t.Fatal(err)
	}
	git("-C", one, "checkout", "-q", "-B", "main")
	git("-C", one, "add", ".")
	git("-C", one, "commit", "-q", "-m", "first")
	git("-C", one, "push", "-q", "origin", "main")
	git("clone", "-q", "ssh://box/workspace/repo.git", two)
	if got := localTree(t, filepath.Join(two, "small")); got != s.treeID {
		t.Error("what was cloned is not what was pushed")
	}
	if err := os.WriteFile(filepath.Join(two, "more"), []byte("more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("-C", two, "add", ".")
	git("-C", two, "commit", "-q", "-m", "second")
	git("-C", two, "push", "-q")
	git("-C", one, "pull", "-q", "--ff-only", "origin", "main")
	if b, err := os.ReadFile(filepath.Join(one, "more")); err != nil || string(b) != "more\n" {
		t.Errorf("pulled %q, %v", b, err)
	}
	if a, b := git("-C", one, "rev-parse", "HEAD"), s.inside(t, "git -C /workspace/repo.git rev-parse main"); a != b {
		t.Errorf("here %q, inside %q", a, b)
	}
}

// mountAndUse: the sandbox's files as a folder of this machine.
func (s *stage) mountAndUse(t *testing.T) {
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("not on this kind of machine: %v", err)
	} else {
		f.Close()
	}
	needTools(t, "sshfs", "fusermount3")
	mnt := t.TempDir()
	s.inside(t, "mkdir -p /workspace/sshfs")
	s.run(t, nil, "sshfs", "-F", s.config, "box:/workspace/sshfs", mnt)
	mounted := true
	unmount := func() {
		if mounted {
			s.run(t, nil, "fusermount3", "-u", mnt)
			mounted = false
		}
	}
	t.Cleanup(func() {
		if mounted {
			_ = exec.Command("fusermount3", "-uz", mnt).Run()
		}
	})
	s.run(t, nil, "cp", s.bulk, filepath.Join(mnt, "bulk"))
	if err := os.CopyFS(filepath.Join(mnt, "small"), os.DirFS(s.small)); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"bulk": "renamed", "small": "tree"} {
		if err := os.Rename(filepath.Join(mnt, from), filepath.Join(mnt, to)); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(mnt, "renamed"))
	if err != nil || sum(b) != s.bulkSum {
		t.Errorf("read back %d bytes, %v", len(b), err)
	}
	if got := localTree(t, filepath.Join(mnt, "tree")); got != s.treeID {
		t.Error("the files read back are not those that were written")
	}
	unmount()
	if got := strings.Fields(s.inside(t, "cd /workspace/sshfs; sha256sum <renamed | cut -c1-64; "+strings.Replace(treeCommand("tree"), "cd ", "cd ./", 1))); len(got) != 2 || got[0] != s.bulkSum || got[1] != s.treeID {
		t.Errorf("inside there is %q", got)
	}
}
