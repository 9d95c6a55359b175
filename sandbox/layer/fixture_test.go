package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		if f := fault.From(err); f.Cause != nil {
			t.Fatalf("%v (%v)", err, f.Cause)
		}
		t.Fatal(err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("owners and marks of overlayfs need root")
	}
}

// sample makes a directory in the overlay form with everything that a layer
// may have.
func sample(t testing.TB) string {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "sample")
	at := func(name string) string {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		return p
	}
	file := func(name, content string, mode os.FileMode) {
		must(t, os.WriteFile(at(name), []byte(content), 0o600))
		must(t, os.Chmod(at(name), mode))
	}
	file("a/file", "content", 0o640)
	must(t, os.Chown(at("a/file"), 1234, 2345))
	file("a/setuid", "x", 0o755|os.ModeSetuid|os.ModeSetgid)
	file("a-b", "sorts before a/file as bytes", 0o644)
	file("a/empty", "", 0)
	file("odd/new\nline", "x", 0o644)
	file("odd/ünï côdé 日本", "x", 0o644)
	file("odd/\xff\xfe not utf-8", "x", 0o644)
	file("odd/-rf *", "x", 0o644)
	file("odd/"+strings.Repeat("n", 255), "x", 0o644)
	file(strings.Repeat("long/", 60)+"deep", "x", 0o644)
	file("attr", "x", 0o644)
	must(t, unix.Setxattr(at("attr"), "user.colour", []byte("blue\x00\xff"), 0))
	must(t, unix.Setxattr(at("attr"), "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	file("links/one", "linked", 0o644)
	must(t, os.Link(at("links/one"), at("links/two")))
	must(t, os.Link(at("links/one"), at("another")))
	must(t, os.Symlink("../../../outside", at("links/soft")))
	must(t, os.Lchown(at("links/soft"), 7, 8))
	must(t, unix.Mkfifo(at("fifo"), 0o622))
	must(t, unix.Mknod(at("gone"), unix.S_IFCHR, 0))
	must(t, os.Link(at("gone"), at("a/gone too"))) // as overlayfs does
	file("opaque/own", "x", 0o644)
	must(t, unix.Setxattr(at("opaque"), trustedOpaque, []byte("y"), 0))
	must(t, unix.Setxattr(at("opaque"), "trusted.overlay.origin", []byte("abc"), 0))
	must(t, os.Mkdir(at("closed"), 0))
	must(t, os.Chmod(at("closed"), os.ModeSticky|0o300))
	sparse, err := os.Create(at("sparse"))
	must(t, err)
	_, err = sparse.WriteAt([]byte("in the middle"), 1<<20)
	must(t, err)
	must(t, sparse.Truncate(3<<20))
	must(t, sparse.Close())
	must(t, os.Chmod(dir, 0o751))
	when := time.Unix(1_500_000_000, 123_456_789)
	must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ts := unix.NsecToTimespec(when.UnixNano() + int64(len(p)))
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}))
	return dir
}

// facts are one line for every file of a tree, with all that a layer keeps.
func facts(t testing.TB, dir string) []string {
	t.Helper()
	var lines []string
	first := make(map[uint64]string)
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		line := fmt.Sprintf("%q %o %d:%d", rel, st.Mode, st.Uid, st.Gid)
		if isWhiteout(&st) {
			lines = append(lines, line+" deleted")
			return nil
		}
		line += fmt.Sprintf(" %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		if !d.IsDir() && st.Nlink > 1 {
			if first[st.Ino] == "" {
				first[st.Ino] = rel
			}
			line += " is " + first[st.Ino]
		}
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %x", len(b), sha256.Sum256(b))
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			line += " -> " + target
		}
		if d.IsDir() || d.Type().IsRegular() {
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			var attrs []string
			must(t, fdXattrs(int(f.Fd()), func(name string, value []byte) error {
				if !ofOnePlace(name) {
					attrs = append(attrs, fmt.Sprintf("%s=%q", name, value))
				}
				return nil
			}))
			sort.Strings(attrs)
			line += " " + strings.Join(attrs, " ")
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	g, w := make(map[string]bool), make(map[string]bool)
	for _, l := range got {
		g[l] = true
	}
	for _, l := range want {
		w[l] = true
	}
	for _, l := range got {
		if !w[l] {
			t.Errorf("%s: has  %s", what, l)
		}
	}
	for _, l := range want {
		if !g[l] {
			t.Errorf("%s: lost %s", what, l)
		}
	}
}

// export writes a directory in the neutral form.
func export(t testing.TB, dir string, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, WriteOverlay(context.Background(), dir, &b, o))
	return b.Bytes()
}

// header and content of one entry.
type item struct {
	tar.Header
	content string
}

func reg(name, content string) item {
	return item{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}
func folder(name string) item {
	return item{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}
func soft(name, target string) item {
	return item{tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}, ""}
}
func hard(name, target string) item {
	return item{tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink}, ""}
}

func archive(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := i.Header
		h.Size = int64(len(i.content))
		must(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(i.content))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// names are the entries of an archive as they are called and typed.
func names(t testing.TB, b []byte) []string {
	t.Helper()
	var all []string
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err != nil {
			return all
		}
		line := h.Name
		switch h.Typeflag {
		case tar.TypeLink:
			line += " = " + h.Linkname
		case tar.TypeSymlink:
			line += " -> " + h.Linkname
		case tar.TypeChar:
			line += " char"
		}
		all = append(all, line)
	}
}
