package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// shownSettings is the white list of /etc: what programs below /usr need to
// work and what is the same on every machine with these packages. A pattern
// names a file or a whole directory. What is not world-readable, or holds a
// private key, is left out whatever its name; symbolic links are copied as
// links and never followed.
//
// Not on it for a reason: passwd, shadow, hosts, profile, environment and
// their like (written anew), apt and pip and npm and git settings (may hold
// credentials), ssh, ssl/private, and anything that is the machine's own.
var shownSettings = []string{
	"alternatives", "crypto-policies", "debian_version", "ethertypes", "fedora-release", "fonts", "gai.conf", "groff",
	"inputrc", "java", "java-*-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime",
	"login.defs", "lsb-release", "magic", "magic.mime", "manpath.config", "mime.types", "nanorc", "os-release", "perl",
	"pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "python[0-9]*",
	"redhat-release", "rpc", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "system-release", "terminfo",
	"timezone", "vim", "xattr.conf",
}

// Bounds of what is taken from /etc; far above what any machine has.
const (
	maxSettings     = 20_000
	maxSettingBytes = 16 << 20
)

// setting is one entry of /etc that a skeleton takes over.
type setting struct {
	path   string // relative to /etc
	info   fs.FileInfo
	target string // of a symbolic link
}

// skeletonPlan is what a skeleton will be made of.
type skeletonPlan struct {
	etc         string
	settings    []setting
	links       map[string]string // /bin and its like, where /usr is merged
	dirs        []string          // those that are directories
	fingerprint string            // changes when any of it does
	seen        []seenFile        // everything looked at but links
}

// seenFile is a file or directory as it was when it was looked at.
type seenFile struct {
	path string
	info fs.FileInfo
}

// planSkeleton looks at the host's settings without reading them.
func (c *Catalog) planSkeleton() (*skeletonPlan, error) {
	p := &skeletonPlan{etc: c.hostPath("etc"), links: make(map[string]string)}
	p.saw(c.cfg.HostRoot)
	p.saw(p.etc)
	for _, name := range rootDirs {
		path := c.hostPath(name)
		target, err := os.Readlink(path)
		switch {
		case err == nil && insideUsr(target):
			p.links[name] = target
		case isRealDir(path):
			p.dirs = append(p.dirs, name)
		}
	}
	for _, pattern := range shownSettings {
		paths := []string{filepath.Join(p.etc, pattern)}
		if strings.ContainsAny(pattern, "*[") {
			paths, _ = filepath.Glob(paths[0]) // the pattern is well-formed
		}
		for _, path := range paths {
			if err := p.collect(path); err != nil {
				return nil, err
			}
		}
	}
	p.fingerprint = p.sum(c.cfg.Unprivileged)
	return p, nil
}

// saw notes the state of a file for unchanged.
func (p *skeletonPlan) saw(path string) {
	if fi, err := os.Lstat(path); err == nil {
		p.seen = append(p.seen, seenFile{path, fi})
	}
}

// unchanged reports whether planning again would give the same. It is cheap
// enough to be asked for every new sandbox: a link cannot change without its
// directory, so only directories and files are looked at.
func (p *skeletonPlan) unchanged() bool {
	for _, s := range p.seen {
		fi, err := os.Lstat(s.path)
		if err != nil || changeTime(fi) != changeTime(s.info) || !os.SameFile(fi, s.info) {
			return false
		}
	}
	return true
}

// changeTime is when a file was last changed in any way, in nanoseconds.
func changeTime(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return fi.ModTime().UnixNano()
}

// insideUsr reports whether a link in the root directory leads into /usr.
func insideUsr(target string) bool {
	return strings.HasPrefix(path.Join("/", target), "/usr/")
}

// collect adds an entry of /etc and what is below it. Only what any user of
// the host could read is taken, so a server that runs as root shows no more
// than one that does not.
func (p *skeletonPlan) collect(full string) error {
	rel, err := filepath.Rel(p.etc, full)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		p.saw(filepath.Join(p.etc, dir))
		fi, err := os.Lstat(filepath.Join(p.etc, dir))
		if err != nil || !fi.IsDir() || fi.Mode().Perm()&0o001 == 0 {
			return nil
		}
	}
	return filepath.WalkDir(full, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil // gone, or not for this user
		}
		fi, err := d.Info()
		if err != nil {
			return nil
		}
		rel, err := filepath.Rel(p.etc, full)
		if err != nil {
			return err
		}
		s := setting{path: rel, info: fi}
		if fi.Mode()&fs.ModeSymlink == 0 {
			p.seen = append(p.seen, seenFile{full, fi})
		}
		switch {
		case fi.IsDir():
			if fi.Mode().Perm()&0o005 != 0o005 {
				return fs.SkipDir
			}
		case fi.Mode()&fs.ModeSymlink != 0:
			if s.target, err = os.Readlink(full); err != nil || !staysInside(rel, s.target) {
				return nil
			}
		case fi.Mode().IsRegular():
			if fi.Mode().Perm()&0o004 == 0 || fi.Size() > maxSettingBytes {
				return nil
			}
		default:
			return nil
		}
		if len(p.settings) == maxSettings {
			return fmt.Errorf("more than %d settings in %s", maxSettings, p.etc)
		}
		p.settings = append(p.settings, s)
		return nil
	})
}

// staysInside reports whether a link at /etc/rel leads to /usr or /etc, which
// is all that a sandbox has.
func staysInside(rel, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join("/etc", path.Dir(rel), target)
	}
	target = path.Clean(target)
	return strings.HasPrefix(target, "/usr/") || strings.HasPrefix(target, "/etc/")
}

// sum is the fingerprint of the plan.
func (p *skeletonPlan) sum(unprivileged bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %v %d %q %q\n", skeletonVersion, unprivileged, os.Geteuid(), p.links, p.dirs)
	for _, s := range p.settings {
		fmt.Fprintf(h, "%q %o %d %d %q\n", s.path, s.info.Mode(), s.info.Size(), changeTime(s.info), s.target)
	}
	return hex.EncodeToString(h.Sum(nil))
}
