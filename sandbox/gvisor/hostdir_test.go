package gvisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
)

func TestHostDirs(t *testing.T) {
	r := newRig(t)
	dir, err := os.MkdirTemp("", "gvisor-host-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("host\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "sub/file"), []byte("host\n"), 0o644))
	r.boot(t, "guest", func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{{Source: dir, Target: "/mnt/shown"}, {Source: "/usr", Target: "/usr"}}
	})
	r.want(t, "guest", "cat /mnt/shown/file; ls /usr/bin/env", "host\n/usr/bin/env")
	r.sh(t, "guest", "cd /mnt/shown; echo mine >file; rm -r sub; echo new >new; echo u >/usr/new; mv /mnt/shown/new /usr/moved")
	const seen = "cd /mnt/shown; ls; cat file /usr/new /usr/moved"
	r.want(t, "guest", seen, "file\nmine\nu\nnew")
	r.stop(t, "guest", 0)
	must(t, r.Start(t.Context(), "guest"))
	r.want(t, "guest", seen, "file\nmine\nu\nnew")
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "host\n" {
		t.Errorf("the host's file: %q, %v", b, err)
	}
	if _, err := os.Stat("/usr/new"); err == nil {
		t.Error("the host's /usr was written to")
	}
	// What the sandbox changed is one tree, and can be a layer.
	if r.host().storage != hostOverlay {
		return
	}
	r.stop(t, "guest", 0)
	layer := dir + "-layer"
	t.Cleanup(func() { os.RemoveAll(layer) })
	must(t, os.Rename(filepath.Join(r.box("guest").data(), "upper"), layer))
	r.boot(t, "child", func(s *driver.Spec) {
		s.Rootfs.Layers = append([]string{layer}, s.Rootfs.Layers...)
		s.Rootfs.HostDirs = []driver.HostDir{{Source: dir, Target: "/mnt/shown"}, {Source: "/usr", Target: "/usr"}}
	})
	r.want(t, "child", "ls /mnt/shown; cat /mnt/shown/file /usr/new /usr/moved; ls /usr/bin/env", "file\nmine\nu\nnew\n/usr/bin/env")
}

// TestHostDirsNest masks parts of a host directory with others, at a place that
// the host has and at one that it has not.
func TestHostDirsNest(t *testing.T) {
	r := newRig(t)
	dir, err := os.MkdirTemp("", "gvisor-host-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"a/secret/key", "mask/empty", "b/file"} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644))
	}
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o751))
	r.boot(t, "nest", func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{
			{Source: filepath.Join(dir, "b"), Target: "/x/deep/new"},
			{Source: filepath.Join(dir, "mask"), Target: "/x/secret"},
			{Source: filepath.Join(dir, "a"), Target: "/x"},
		}
	})
	const look = "cd /x; ls -d * */* */*/*; cat deep/new/file; stat -c %a ."
	const want = "deep\ndeep/new\ndeep/new/file\nsecret\nsecret/empty\nb/file\n751"
	r.want(t, "nest", look, want)
	r.sh(t, "nest", "echo mine >/x/secret/mine; echo mine >/x/deep/new/file; chmod 700 /x/deep")
	r.stop(t, "nest", 0)
	must(t, r.Start(t.Context(), "nest"))
	r.want(t, "nest", "cat /x/secret/mine /x/deep/new/file; stat -c %a /x/deep; ls /x/secret", "mine\nmine\n700\nempty\nmine")
	if list, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(list) != 1 {
		t.Errorf("the host's directory is %v, %v", list, err)
	}
}

// TestHostileTree starts a sandbox that put symbolic links where its next
// start needs directories.
func TestHostileTree(t *testing.T) {
	r := newRig(t)
	dir, err := os.MkdirTemp("", "gvisor-host-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	target := filepath.Join(dir, "target")
	must(t, os.Mkdir(target, 0o777))
	source := filepath.Join(dir, "source")
	must(t, os.Mkdir(source, 0o755))
	r.boot(t, "evil", func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{{Source: source, Target: "/a/b"}}
	})
	r.sh(t, "evil", "rm -rf /tmp; ln -s "+target+" /tmp; rm -rf /etc; ln -s "+target+" /etc; mv /a /c; mkdir /a; ln -s "+target+" /a/b; ls -l /a /c >&2")
	r.stop(t, "evil", 0)
	err = r.Start(t.Context(), "evil")
	t.Log(err)
	if list, err := os.ReadDir(target); err != nil || len(list) > 0 {
		t.Errorf("the sandbox reached the host: %v, %v", list, err)
	}
}
