package drivertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

func fileTests() []test {
	return append(fileOperationTests(), []test{
		{name: "Files/KeptOverStop", run: testFilesKept},
		{name: "Files/Private", run: testFilesPrivate},
		{name: "Files/SystemKeptOverStop", walls: true, run: testSystemFilesKept},
		{name: "Files/LayersUntouched", walls: true, run: testLayersUntouched},
		{name: "Files/WriteAndRead", run: testWriteAndRead},
		{name: "Files/HostDirs", walls: true, needs: driver.FeatureHostDirs, run: testHostDirs},
	}...)
}

// graces are the ways to stop: with notice, and at once.
var graces = []time.Duration{20 * time.Second, 0}

func testFilesKept(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "mkdir -p d && echo one >d/f && chmod 640 d/f && ln -s f d/l")
	for _, grace := range graces {
		b.stop(t, grace)
		b.start(t)
		if got := b.sh(t, "cat d/l; stat -c %a d/f"); got != "one\n640" {
			t.Errorf("after a stop with grace %v: %q", grace, got)
		}
	}
}

func testFilesPrivate(t *testing.T, e *env) {
	a, b := e.boot(t), e.boot(t)
	a.sh(t, "echo mine >private")
	b.refuses(t, "cat private")

	// An id that is used again starts from nothing.
	e.remove(t, a.id)
	again := e.boot(t, func(s *driver.Spec) { s.ID = a.id })
	again.refuses(t, "cat private")
}

func testSystemFilesKept(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, `echo changed >/etc/issue && rm /bin/true && echo new >/usr/new &&
		mkdir /opt && echo o >/opt/f && chown 1000:1000 /opt/f && mv /etc/group /etc/group.old`)
	for _, grace := range graces {
		b.stop(t, grace)
		b.start(t)
		got := b.sh(t, `cat /etc/issue /usr/new /opt/f; stat -c %u:%g /opt/f; ls /bin/true /etc/group 2>/dev/null; head -n 1 /etc/group.old`)
		if want := "changed\nnew\no\n1000:1000\nroot:x:0:"; got != want {
			t.Errorf("after a stop with grace %v: %q, want %q", grace, got, want)
		}
	}
}

// testLayersUntouched holds that the read-only parts stay as they are on the
// host, and that another sandbox sees them so.
func testLayersUntouched(t *testing.T, e *env) {
	layer := e.h.Rootfs.Layers[0]
	before := fingerprint(t, layer)
	a, b := e.boot(t), e.boot(t)
	a.sh(t, `echo x >>/etc/issue; rm -rf /home /bin/cat; chmod 777 /etc; touch -d @1 /etc/passwd; mkdir /extra; mv /etc/group /`)
	if got := b.sh(t, `cat /etc/issue; stat -c %a /etc; ls -d /home/user /bin/cat /etc/group`); got != issue+"\n755\n/bin/cat\n/etc/group\n/home/user" {
		t.Errorf("another sandbox sees %q", got)
	}
	a.stop(t, 0)
	if fingerprint(t, layer) != before {
		t.Errorf("a sandbox changed the layer %s on the host", layer)
	}
}

// fingerprint digests names, modes, sizes, times and small contents of a tree.
func fingerprint(t testing.TB, root string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		_, _ = io.WriteString(h, path+info.Mode().String()+info.ModTime().UTC().String()+strconv.FormatInt(info.Size(), 10))
		if info.Mode().IsRegular() && info.Size() < 64<<10 {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			h.Write(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func testWriteAndRead(t *testing.T, e *env) {
	b := e.boot(t)
	content := make([]byte, 5<<20+123)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(content) // never fails
	if err := b.conn.WriteFile(ctx(t), "deep/down/file", 0o640, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if got, want := b.sh(t, "sha256sum <deep/down/file; stat -c %a deep/down/file"), hex.EncodeToString(sum[:])+"  -\n640"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f, err := b.conn.ReadFile(ctx(t), "deep/down/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if back, err := io.ReadAll(f); err != nil || !bytes.Equal(back, content) {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
}

// testHostDirs holds that a sandbox may change its view of a host directory
// and never the directory.
func testHostDirs(t *testing.T, e *env) {
	dir := t.TempDir()
	for name, content := range map[string]string{"kept": "host\n", "deleted": "host\n", "sub/deep": "host\n", "covered/hidden": "host\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "o"), []byte("other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, dir)
	show := func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{
			{Source: other, Target: "/mnt/a/shown/covered"}, // a target below another
			{Source: dir, Target: "/mnt/a/shown"},
			{Source: other, Target: "/opt/other"},
		}
	}
	a, b := e.boot(t, show), e.boot(t, show)
	a.sh(t, `cd /mnt/a/shown && echo sandbox >kept && rm deleted && rm -r sub && echo new >new && chmod 700 . && echo x >covered/x`)
	const seen = `cd /mnt/a/shown && ls && cat kept covered/o /opt/other/o && stat -c %a . && ls /opt/other`
	want := "covered\nkept\nnew\nsandbox\nother\nother\n700\no"
	if got := a.sh(t, seen); got != want {
		t.Errorf("the sandbox sees %q, want %q", got, want)
	}
	a.stop(t, 0)
	a.start(t)
	if got := a.sh(t, seen); got != want {
		t.Errorf("after a stop the sandbox sees %q, want %q", got, want)
	}
	if got := b.sh(t, `cd /mnt/a/shown && ls . covered && cat kept sub/deep /opt/other/o`); got != ".:\ncovered\ndeleted\nkept\nsub\n\ncovered:\no\nhost\nhost\nother" {
		t.Errorf("another sandbox sees %q", got)
	}
	if fingerprint(t, dir) != before {
		t.Error("the host directory was changed")
	}
	e.remove(t, a.id)
	if fingerprint(t, dir) != before {
		t.Error("the host directory was changed by the removal")
	}
}
