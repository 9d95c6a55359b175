package image

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// hostFile is a file of a made-up host.
type hostFile struct {
	path, content string
	mode          fs.FileMode
}

const secret = "SECRET-OF-THIS-HOST"

// fakeHost makes a host with secrets wherever hosts have them.
func fakeHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := []hostFile{
		{"usr/bin/sh", "", 0o755},
		{"usr/lib/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\n", 0o644},
		{"usr/local/etc/npmrc", secret, 0o644},
		{"etc/ld.so.cache", "cache", 0o644},
		{"etc/ld.so.conf.d/x.conf", "/usr/lib/x", 0o644},
		{"etc/ssl/certs/ca-certificates.crt", "public", 0o644},
		{"etc/ssl/openssl.cnf", "settings", 0o644},
		{"etc/python3.11/sitecustomize.py", "pass", 0o644},
		{"etc/java-17-openjdk/security/java.security", "settings", 0o644},
		{"etc/services", "ssh 22/tcp", 0o644},

		{"etc/passwd", "alice:x:1000:1000:" + secret, 0o644},
		{"etc/group", secret, 0o644},
		{"etc/shadow", secret, 0o640},
		{"etc/hosts", secret, 0o644},
		{"etc/hostname", secret, 0o644},
		{"etc/resolv.conf", secret, 0o644},
		{"etc/machine-id", secret, 0o444},
		{"etc/environment", secret, 0o644},
		{"etc/profile", secret, 0o644},
		{"etc/profile.d/token.sh", secret, 0o644},
		{"etc/bash.bashrc", secret, 0o644},
		{"etc/nsswitch.conf", secret, 0o644},
		{"etc/gitconfig", secret, 0o644},
		{"etc/npmrc", secret, 0o644},
		{"etc/pip.conf", secret, 0o644},
		{"etc/wgetrc", secret, 0o644},
		{"etc/fstab", secret, 0o644},
		{"etc/ssh/ssh_host_ed25519_key", secret, 0o600},
		{"etc/apt/sources.list", "deb https://user:" + secret + "@mirror/debian bookworm main", 0o644},
		{"etc/apt/auth.conf.d/x.conf", secret, 0o644},
		{"etc/ssl/private/host.key", secret, 0o644},
		{"etc/ssl/certs/oops.pem", "-----BEGIN PRIVATE KEY-----\n" + secret, 0o644},
		{"etc/ssl/certs/tight.pem", secret, 0o640},
		{"etc/java-11-openjdk/management/jmxremote.password", secret, 0o600},
		{"etc/perl/hidden/x", secret, 0o644}, // its directory is closed below
		{"home/alice/.ssh/id_ed25519", secret, 0o644},
		{"root/.aws/credentials", secret, 0o644},
		{"var/lib/app/token", secret, 0o644},
		{"run/secret", secret, 0o644},
		{"srv/secret", secret, 0o644},
		{"opt/secret", secret, 0o644},
	}
	for _, f := range files {
		path := filepath.Join(root, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"bin": "usr/bin", "sbin": "/usr/sbin", "lib": "usr/lib",
		"etc/os-release":            "../usr/lib/os-release",
		"etc/localtime":             "/usr/share/zoneinfo/Etc/UTC",
		"etc/alternatives/editor":   "/usr/bin/vim",
		"etc/ssl/certs/link.pem":    "../private/host.key",
		"etc/vim":                   "/root/.vim", // a whole directory elsewhere
		"etc/alternatives/outside":  "/root/.aws/credentials",
		"etc/alternatives/outside2": "../../home/alice/.ssh/id_ed25519",
		"etc/protocols":             "/srv/secret",
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/alternatives"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/ssl/certs/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "etc/perl/hidden"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func provide(t *testing.T, c *Catalog, name string) driver.Rootfs {
	t.Helper()
	_, rootfs, err := c.Provide(context.Background(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rootfs
}

func TestHostSkeleton(t *testing.T) {
	host := fakeHost(t)
	c := newCatalog(t, Config{HostRoot: host})
	umask := syscall.Umask(0o077) // must not matter
	rt, rootfs, err := c.Provide(context.Background(), "host:latest", nil)
	syscall.Umask(umask)
	if err != nil {
		t.Fatal(err)
	}
	if !rt.Ready || rt.ID != HostID || rt.Digest != "" || rt.Source != "this host (Debian GNU/Linux 12 (bookworm))" {
		t.Errorf("runtime = %+v", rt)
	}
	wantDirs := []driver.HostDir{
		{Source: filepath.Join(host, "usr"), Target: "/usr"},
		{Source: filepath.Join(c.cfg.Dir, "empty"), Target: "/usr/local/etc"},
	}
	if !slices.Equal(rootfs.HostDirs, wantDirs) {
		t.Errorf("HostDirs = %v, want %v", rootfs.HostDirs, wantDirs)
	}
	got := tree(t, rootfs.Layers[0])
	for path, content := range got {
		if strings.Contains(content, secret) || strings.Contains(path, "alice") {
			t.Errorf("%s shows %.80q", path, content)
		}
	}
	for _, path := range []string{
		"etc/alternatives/outside", "etc/alternatives/outside2", "etc/vim", "etc/protocols", "etc/ssl/certs/oops.pem", "etc/ssl/private",
		"etc/ssl/certs/tight.pem", "etc/ssl/certs/pipe", "etc/perl/hidden", "etc/apt", "etc/ssh", "etc/gitconfig", "etc/npmrc", "etc/profile.d/token.sh",
	} {
		if content, ok := got[path]; ok {
			t.Errorf("%s is there: %q", path, content)
		}
	}
	for path, want := range map[string]string{
		"bin": "-> usr/bin", "sbin": "-> /usr/sbin", "lib": "-> usr/lib", "usr": "dir",
		"etc/os-release": "-> ../usr/lib/os-release", "etc/localtime": "-> /usr/share/zoneinfo/Etc/UTC",
		"etc/alternatives/editor": "-> /usr/bin/vim", "etc/ssl/certs/ca-certificates.crt": "public", "etc/ld.so.cache": "cache",
		"etc/ld.so.conf.d/x.conf": "/usr/lib/x", "etc/python3.11/sitecustomize.py": "pass", "etc/services": "ssh 22/tcp",
		"etc/java-17-openjdk/security/java.security": "settings",
		"etc/hostname": "", "etc/resolv.conf": "", "etc/machine-id": "", "tmp/.keep": "", "workspace": "dir", ".sandgate": "dir",
		"home/sandbox": "dir", "var/run": "-> /run", "proc": "dir", "sys": "dir", "dev": "dir", "root/.profile": got["root/.profile"],
	} {
		if content, ok := got[path]; !ok || content != want {
			t.Errorf("%s = %q, %v, want %q", path, content, ok, want)
		}
	}
	if p := got["etc/passwd"]; !strings.HasPrefix(p, "root:x:0:0:") || !strings.Contains(p, "\nsandbox:x:1000:1000:") || !strings.Contains(p, "\n_apt:") {
		t.Errorf("passwd = %q", p)
	}
	for line := range strings.Lines(got["etc/shadow"]) {
		if fields := strings.Split(line, ":"); fields[1] != "*" {
			t.Errorf("shadow has a password: %q", line)
		}
	}
	for path, want := range map[string]fs.FileMode{
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "root": fs.ModeDir | 0o700, "etc/shadow": 0o600, "etc/passwd": 0o644,
		"etc": fs.ModeDir | 0o755, "etc/ssl": fs.ModeDir | 0o755, "etc/ssl/certs": fs.ModeDir | 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644,
		"workspace": fs.ModeDir | 0o755, "var/tmp": fs.ModeDir | fs.ModeSticky | 0o777, ".": fs.ModeDir | 0o755,
	} {
		fi, err := os.Lstat(filepath.Join(rootfs.Layers[0], path))
		if err != nil {
			t.Error(err)
			continue
		}
		if fi.Mode() != want {
			t.Errorf("mode of %s = %v, want %v", path, fi.Mode(), want)
		}
	}
	if err := c.Verify(context.Background(), rootfs.Digest); err != nil {
		t.Error(err)
	}
	asNobody(t)
}

func TestHostSkeletonFollowsTheHost(t *testing.T) {
	host := fakeHost(t)
	dir := filepath.Join(t.TempDir(), "layers")
	c := newCatalog(t, Config{HostRoot: host, Dir: dir})
	first := provide(t, c, "host")
	if again := provide(t, c, "srt_host"); again.Digest != first.Digest {
		t.Errorf("the same host gave %s and %s", first.Digest, again.Digest)
	}
	c.Close() // waits until the reference is on disk

	before, err := os.Stat(first.Layers[0])
	if err != nil {
		t.Fatal(err)
	}
	c = newCatalog(t, Config{HostRoot: host, Dir: dir})
	if again := provide(t, c, "host"); again.Digest != first.Digest {
		t.Errorf("after a restart the same host gave %s and %s", first.Digest, again.Digest)
	}
	if after, err := os.Stat(first.Layers[0]); err != nil || !os.SameFile(before, after) {
		t.Errorf("the skeleton was made again: %v", err)
	}

	if err := os.WriteFile(filepath.Join(host, "etc/ld.so.cache"), []byte("newer cache"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := provide(t, c, "host")
	if got, _ := os.ReadFile(filepath.Join(second.Layers[0], "etc/ld.so.cache")); string(got) != "newer cache" {
		t.Errorf("ld.so.cache = %q after it changed on the host", got)
	}
	if err := os.Symlink("/usr/bin/less", filepath.Join(host, "etc/alternatives/pager")); err != nil {
		t.Fatal(err)
	}
	third := provide(t, c, "host")
	if got, _ := os.Readlink(filepath.Join(third.Layers[0], "etc/alternatives/pager")); got != "/usr/bin/less" {
		t.Errorf("pager = %q after it was added on the host", got)
	}
	if !isRealDir(first.Layers[0]) {
		t.Error("the first skeleton, which a sandbox may use, is gone")
	}
}

// A damaged skeleton, as a crash of the machine may leave one, is replaced.
func TestDamagedLayerIsReplaced(t *testing.T) {
	host := fakeHost(t)
	dir := filepath.Join(t.TempDir(), "layers")
	c := newCatalog(t, Config{HostRoot: host, Dir: dir})
	first := provide(t, c, "host")
	c.Close()
	if err := os.WriteFile(filepath.Join(first.Layers[0], "etc/passwd"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "refs", HostID)); err != nil {
		t.Fatal(err)
	}
	c = newCatalog(t, Config{HostRoot: host, Dir: dir})
	if err := c.Verify(context.Background(), first.Digest); !fault.Is(err, fault.State) {
		t.Errorf("Verify of a damaged layer = %v, want code STATE", err)
	}
	again := provide(t, c, "host")
	if again.Digest != first.Digest {
		t.Errorf("digest = %s, want %s", again.Digest, first.Digest)
	}
	if err := c.Verify(context.Background(), again.Digest); err != nil {
		t.Error(err)
	}
}

func TestHostWithoutMergedUsr(t *testing.T) {
	host := t.TempDir()
	for _, dir := range []string{"usr/bin", "bin", "sbin", "lib", "etc"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := newCatalog(t, Config{HostRoot: host})
	if _, _, err := c.Provide(context.Background(), "host", nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a host without a shell gave %v, want code UNAVAILABLE", err)
	}
	if err := os.WriteFile(filepath.Join(host, "bin/sh"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/srv/evil", filepath.Join(host, "lib64")); err != nil {
		t.Fatal(err)
	}
	rootfs := provide(t, c, "host")
	want := []driver.HostDir{
		{Source: filepath.Join(host, "usr"), Target: "/usr"},
		{Source: filepath.Join(host, "bin"), Target: "/bin"},
		{Source: filepath.Join(host, "sbin"), Target: "/sbin"},
		{Source: filepath.Join(host, "lib"), Target: "/lib"},
	}
	if !slices.Equal(rootfs.HostDirs, want) {
		t.Errorf("HostDirs = %v, want %v", rootfs.HostDirs, want)
	}
	got := tree(t, rootfs.Layers[0])
	for _, name := range []string{"usr", "bin", "sbin", "lib"} {
		if got[name] != "dir" {
			t.Errorf("%s = %q, want a directory to show the host's on", name, got[name])
		}
	}
	if _, ok := got["lib64"]; ok {
		t.Error("a link out of /usr was copied")
	}
}

// The skeleton of the machine the test runs on holds no file of its users.
func TestThisHost(t *testing.T) {
	c := newCatalog(t, Config{})
	if err := c.hostUsable(); err != nil {
		t.Skipf("needs a host with programs: %v", err)
	}
	rootfs := provide(t, c, "host:latest")
	got := tree(t, rootfs.Layers[0])
	for path, content := range got {
		if strings.Contains(content, "PRIVATE KEY-----") {
			t.Errorf("%s holds a private key", path)
		}
	}
	if _, ok := got["etc/os-release"]; !ok {
		t.Error("etc/os-release is missing")
	}
	asNobody(t)
}

func BenchmarkHostAgain(b *testing.B) {
	c, err := New(Config{Dir: filepath.Join(b.TempDir(), "layers"), BaseImage: NoImage})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if _, _, err := c.Provide(context.Background(), "host", nil); err != nil {
			b.Fatal(err)
		}
	}
}
