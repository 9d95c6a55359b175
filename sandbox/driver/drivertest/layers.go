package drivertest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
)

func layerTests() []test {
	return []test{
		{name: "Layers/TopmostFirst", walls: true, run: testLayerOrder},
		{name: "Layers/Whiteouts", walls: true, run: testWhiteouts},
		{name: "Layers/Attributes", walls: true, run: testLayerAttributes},
	}
}

// tree is a directory being filled for a test.
type tree struct {
	t   *testing.T
	dir string
}

// newTree makes an empty layer. It outlives the test, because a driver may
// keep something for as long as it is there.
func (e *env) newTree(t *testing.T) tree {
	dir, err := os.MkdirTemp(e.scratch, "layer")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return tree{t, dir}
}

func (l tree) path(name string) string {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	l.ok(os.MkdirAll(filepath.Dir(path), 0o755))
	return path
}

func (l tree) file(name, content string) {
	l.t.Helper()
	l.ok(os.WriteFile(l.path(name), []byte(content), 0o644))
}

func (l tree) ok(err error) {
	l.t.Helper()
	if errors.Is(err, unix.EPERM) {
		l.t.Skipf("making this layer needs root: %v", err)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// over returns a change that puts the trees over the harness's layers.
func over(digest string, trees ...tree) func(*driver.Spec) {
	return func(s *driver.Spec) {
		var layers []string
		for _, l := range trees {
			layers = append(layers, l.dir)
		}
		s.Rootfs.Layers = append(layers, s.Rootfs.Layers...)
		s.Rootfs.Digest = digest
	}
}

func randomDigest() string {
	b := make([]byte, 32)
	rand.Read(b)
	return "sha256:" + hex.EncodeToString(b)
}

func testLayerOrder(t *testing.T, e *env) {
	low, high := e.newTree(t), e.newTree(t)
	low.file("probe/both", "low")
	low.file("probe/low", "low")
	high.file("probe/both", "high")
	high.file("probe/high", "high")
	for _, digest := range []string{"", randomDigest()} {
		b := e.boot(t, over(digest, high, low))
		if got := b.sh(t, "cd /probe; for f in *; do echo $f $(cat $f); done"); got != "both high\nhigh high\nlow low" {
			t.Errorf("with digest %q: %q", digest, got)
		}
		if digest == "" {
			continue
		}
		// A second sandbox from the same layers may come from a cache.
		again := e.boot(t, over(digest, high, low))
		if got := again.sh(t, "cat /probe/both"); got != "high" {
			t.Errorf("from the cache: %q", got)
		}
	}
}

func testWhiteouts(t *testing.T, e *env) {
	low, high := e.newTree(t), e.newTree(t)
	for _, name := range []string{"probe/gone", "probe/gonedir/x", "probe/opaque/hidden", "probe/merged/shown", "probe/replaced/x"} {
		low.file(name, "low")
	}
	for _, name := range []string{"probe/gone", "probe/gonedir"} {
		high.ok(unix.Mknod(high.path(name), unix.S_IFCHR, 0))
	}
	high.file("probe/opaque/own", "high")
	high.ok(unix.Lsetxattr(high.path("probe/opaque"), "trusted.overlay.opaque", []byte("y"), 0))
	high.file("probe/merged/own", "high")
	high.file("probe/replaced", "a file now")
	b := e.boot(t, over("", high, low))
	got := b.sh(t, `cd /probe; find . | sort; cat replaced`)
	want := ".\n./merged\n./merged/own\n./merged/shown\n./opaque\n./opaque/own\n./replaced\na file now"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func testLayerAttributes(t *testing.T, e *env) {
	l := e.newTree(t)
	l.file("probe/owned", "x")
	l.ok(os.Lchown(l.path("probe/owned"), 1234, 2345))
	l.ok(os.Chmod(l.path("probe/owned"), 0o750|os.ModeSetuid|os.ModeSetgid))
	l.ok(os.Link(l.path("probe/owned"), l.path("probe/hard")))
	l.ok(os.Symlink("../../target", l.path("probe/soft")))
	l.ok(os.Symlink("/dangling", l.path("probe/dangling")))
	l.ok(unix.Mkfifo(l.path("probe/fifo"), 0o600))
	l.ok(os.Mkdir(l.path("probe/sticky"), 0o755))
	l.ok(os.Chmod(l.path("probe/sticky"), 0o777|os.ModeSticky))
	l.file("probe/name with\nnewline", "x")
	b := e.boot(t, over("", l))
	got := b.sh(t, `cd /probe; stat -c %u:%g:%a owned; [ owned -ef hard ] && echo same
		readlink soft; readlink dangling; stat -c %a sticky; [ -p fifo ] && echo fifo; cat 'name with
newline'`)
	if want := "1234:2345:6750\nsame\n../../target\n/dangling\n1777\nfifo\nx"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
