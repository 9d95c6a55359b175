package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nobody is the user tests become to see what a server without root sees.
const nobody = 65534

// runAsNobody marks a test process that was started by asNobody.
const runAsNobody = "SANDGATE_TEST_AS_NOBODY"

// need skips a test that lacks something, or fails it where CI promises that
// it is there: SANDGATE_TEST_REQUIRE lists what must not be skipped.
func need(t *testing.T, what string, have bool, why string) {
	t.Helper()
	if have {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("SANDGATE_TEST_REQUIRE"), ","), what) {
		t.Fatalf("%s is required here: %s", what, why)
	}
	t.Skipf("needs %s: %s", what, why)
}

// asNobody runs the calling test again in a process of an ordinary user.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Getenv(runAsNobody) != "" {
		return
	}
	name := t.Name()
	t.Run("as an ordinary user", func(t *testing.T) {
		need(t, "root", os.Geteuid() == 0, "only root can become another user")
		cmd := exec.Command(publicTestBinary(t), "-test.run=^"+name+"$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + toolPath, runAsNobody + "=1", "TMPDIR=" + publicDir(t)}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

// publicDir is a directory that every user may use.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sandgate-image-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// publicTestBinary is this test program where every user can run it.
func publicTestBinary(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(publicDir(t), "image.test")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // a test may have set a umask
		t.Fatal(err)
	}
	return path
}

// newCatalog opens a catalog that reaches no network unless cfg says so.
func newCatalog(t *testing.T, cfg Config) *Catalog {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "layers")
	}
	orDefault(&cfg.BaseImage, NoImage)
	orDefault(&cfg.Mmdebstrap, "/nonexistent/mmdebstrap")
	orDefault(&cfg.KillGrace, 50*time.Millisecond)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// progressLog collects progress lines of several goroutines.
type progressLog struct {
	mu    sync.Mutex
	lines []string
}

func (p *progressLog) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

func (p *progressLog) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// tarOf makes a tar stream of entries; sizes are filled in.
func tarOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		h.Size = int64(len(e.content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

type tarEntry struct {
	tar.Header
	content string
}

func file(name, content string) tarEntry {
	return tarEntry{tar.Header{Name: name}, content}
}

func dir(name string) tarEntry {
	return tarEntry{tar.Header{Name: name, Typeflag: tar.TypeDir}, ""}
}

func symlink(name, target string) tarEntry {
	return tarEntry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

func hardlink(name, target string) tarEntry {
	return tarEntry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}, ""}
}

// minimalRoot is the least that counts as a root filesystem.
func minimalRoot(extra ...tarEntry) []tarEntry {
	return append([]tarEntry{
		dir("usr/"), dir("usr/bin/"), symlink("bin", "usr/bin"), file("usr/bin/dash", "#!"), symlink("usr/bin/sh", "dash"), dir("etc/"),
	}, extra...)
}

// tree lists a directory: "path type" and for files their content.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == "." {
			return err
		}
		switch {
		case d.IsDir():
			out[rel] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			out[rel] = "-> " + target
			return err
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			out[rel] = string(data)
			return err
		default:
			out[rel] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// assertNothingMade checks that a failed build left no trace in the store and
// none in the scratch directory.
func assertNothingMade(t *testing.T, c *Catalog) {
	t.Helper()
	for _, dir := range []string{c.cfg.Dir, c.cfg.Scratch} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !slices.Contains([]string{"empty", "locks", "refs"}, e.Name()) {
				t.Errorf("%s was left in %s", e.Name(), dir)
			}
		}
	}
	if got := tree(t, c.layers.refs()); len(got) != 0 {
		t.Errorf("references were left: %v", got)
	}
	layers, err := c.Layers(context.Background())
	if err != nil || len(layers) != 0 {
		t.Errorf("Layers = %v, %v", layers, err)
	}
}

// fakeMirror answers for the suites it has, the way a Debian mirror does.
func fakeMirror(t *testing.T, suites map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		suite := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/debian/dists/"), "/InRelease")
		codename, ok := suites[suite]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nSuite: " + suite +
			"\nCodename: " + codename + "\nDate: Sat, 06 Sep 2025 09:00:00 UTC\nSHA256:\n"))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/debian"
}

// stable is what a mirror has for most tests.
var stable = map[string]string{"stable": "trixie"}

// fakeTool writes a shell script to stand in for mmdebstrap.
func fakeTool(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mmdebstrap")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeTar writes a tar stream to a file for a fake tool to print.
func writeTar(t *testing.T, entries ...tarEntry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(path, tarOf(t, entries...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeFile writes a file of a made-up host.
func writeFile(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
