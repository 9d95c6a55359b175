package tree_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// item is an entry of an archive that a test makes.
type item struct {
	name, content, link string
	kind                byte // of tar
	size                int64
}

func tarOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Linkname: i.link, Typeflag: i.kind, Mode: 0o644, Size: int64(len(i.content)) + i.size}
		if i.kind == tar.TypeDir {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.content); err != nil {
			t.Fatal(err)
		}
		if i.size > 0 {
			if _, err := io.CopyN(w, zeros{}, i.size); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate}
		content := io.MultiReader(strings.NewReader(i.content), io.LimitReader(zeros{}, i.size))
		switch i.kind {
		case tar.TypeSymlink:
			h.SetMode(fs.ModeSymlink | 0o777)
			content = strings.NewReader(i.link)
		case tar.TypeFifo:
			h.SetMode(fs.ModeNamedPipe | 0o600)
		case tar.TypeDir:
			h.SetMode(fs.ModeDir | 0o755)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(f, content); err != nil && !strings.HasSuffix(i.name, "/") {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Whatever an archive says, nothing is made outside of the directory, and the
// entry that tries is named.
func TestUnpackRefuses(t *testing.T) {
	good := item{name: "good/file", content: "good", kind: tar.TypeReg}
	reg := func(name string) item { return item{name: name, content: "evil", kind: tar.TypeReg} }
	sym := func(name, target string) item { return item{name: name, link: target, kind: tar.TypeSymlink} }
	for _, tc := range []struct {
		name  string
		items []item
		says  string
		tar   bool // cannot be said in a zip
	}{
		{"absolute", []item{reg("/tmp/evil")}, `"/tmp/evil" is absolute`, false},
		{"parent", []item{reg("../evil")}, `"../evil" contains ".."`, false},
		{"parent below", []item{reg("a/../../evil")}, `contains ".."`, false},
		{"parent that stays", []item{reg("a/../b")}, `contains ".."`, false},
		{"parent directory", []item{{name: "..", kind: tar.TypeDir}}, `contains ".."`, false},
		{"through a link", []item{sym("l", "/tmp"), reg("l/evil")}, `"l/evil" leads through a link out`, false},
		{"through a relative link", []item{sym("l", "../.."), reg("l/evil")}, `"l/evil" leads through a link out`, false},
		{"through two links", []item{sym("a", ".."), sym("b", "a/.."), reg("b/evil")}, `"b/evil" leads through a link out`, false},
		{"through proc", []item{sym("l", "/proc/self/root"), reg("l/tmp/evil")}, `leads through a link out`, false},
		{"directory through a link", []item{sym("l", "/tmp"), {name: "l/evil", kind: tar.TypeDir}}, `leads through a link out`, false},
		{"link through a link", []item{sym("l", "/tmp"), sym("l/evil", "x")}, `leads through a link out`, false},
		{"below a dangling link", []item{sym("l", "none"), reg("l/evil")}, "l/evil", false},
		{"hard link out", []item{{name: "h", link: "/etc/passwd", kind: tar.TypeLink}}, `"h" is a link out`, true},
		{"hard link to a parent", []item{{name: "h", link: "../../etc/passwd", kind: tar.TypeLink}}, `"h" is a link out`, true},
		{"hard link through a link", []item{sym("l", "/etc"), {name: "h", link: "l/passwd", kind: tar.TypeLink}}, `"h" leads through a link out`, true},
		{"long name", []item{reg(strings.Repeat("n", 300))}, "at most 255", false},
		{"long path", []item{reg(strings.Repeat("n/", 2100) + "n")}, "at most 4095", false},
		{"a megabyte of name", []item{reg(strings.Repeat("n", 60_000))}, "at most 255", false},
		{"over a directory", []item{reg("good")}, `"good" would replace a directory`, false},
	} {
		archives := map[tree.Format][]byte{tree.Tar: tarOf(t, append([]item{good}, tc.items...)...)}
		archives[tree.TarGz] = gzipOf(t, archives[tree.Tar])
		if !tc.tar {
			archives[tree.Zip] = zipOf(t, append([]item{good}, tc.items...)...)
		}
		for f, archive := range archives {
			t.Run(tc.name+"/"+string(f), func(t *testing.T) {
				above := t.TempDir()
				dir := filepath.Join(above, "a/b")
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				done, err := unpackInto(t, dir, f, bytes.NewReader(archive), tree.Limits{})
				if err == nil || !strings.Contains(err.Error(), tc.says) || strings.ContainsAny(err.Error(), "\n") || len(err.Error()) > 500 {
					t.Errorf("%.600v", err)
				}
				if f != tree.Zip && done.Files != 1 {
					t.Errorf("%+v was unpacked before", done)
				}
				found, err := filepath.Glob(above + "/*")
				if err != nil || len(found) != 1 {
					t.Errorf("outside: %q %v", found, err)
				}
				if found, _ := filepath.Glob(above + "/a/*"); len(found) != 1 {
					t.Errorf("outside: %q", found)
				}
				if _, err := os.Lstat("/tmp/evil"); err == nil {
					t.Error("/tmp/evil was made")
				}
			})
		}
	}
}

// What exists is replaced and not written through.
func TestUnpackReplaces(t *testing.T) {
	for f, archive := range map[tree.Format][]byte{
		tree.Tar: tarOf(t, item{name: "f", content: "new", kind: tar.TypeReg}, item{name: "dir/", kind: tar.TypeDir}, item{name: "dir/g", content: "new", kind: tar.TypeReg}),
		tree.Zip: zipOf(t, item{name: "f", content: "new"}, item{name: "dir/", kind: tar.TypeDir}, item{name: "dir/g", content: "new"}),
	} {
		above := t.TempDir()
		dir := filepath.Join(above, "dir")
		for _, d := range []string{dir, dir + "/real"} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(
			os.WriteFile(above+"/outside", []byte("old"), 0o600), os.Link(above+"/outside", dir+"/f"),
			os.Symlink("real", dir+"/dir"), // a link that stays below is a directory like others
			os.Symlink("../../outside", dir+"/real/g"),
		); err != nil {
			t.Fatal(err)
		}
		if _, err := unpackInto(t, dir, f, bytes.NewReader(archive), tree.Limits{}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		for path, want := range map[string]string{above + "/outside": "old", dir + "/f": "new", dir + "/real/g": "new"} {
			if b, err := os.ReadFile(path); string(b) != want {
				t.Errorf("%s: %s is %q, %v", f, path, b, err)
			}
		}
		if info, err := os.Lstat(dir + "/dir"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s: the link has gone: %v", f, err)
		}
	}
}

func TestUnpackLimits(t *testing.T) {
	big := item{name: "big", kind: tar.TypeReg, size: 110 << 20}
	many := make([]item, 50)
	for i := range many {
		many[i] = item{name: strings.Repeat("x", i+1), kind: tar.TypeReg, content: "0123456789"}
	}
	bomb := gzipOf(t, tarOf(t, big))
	for _, tc := range []struct {
		name    string
		format  tree.Format
		archive []byte
		limits  tree.Limits
		says    string
	}{
		{"entries", tree.Tar, tarOf(t, many...), tree.Limits{Entries: 10}, "is one too many: at most 10"},
		{"entries of a zip", tree.Zip, zipOf(t, many...), tree.Limits{Entries: 10}, "is one too many: at most 10"},
		{"bytes", tree.Tar, tarOf(t, many...), tree.Limits{Bytes: 95}, "does not fit"},
		{"bytes of a zip", tree.Zip, zipOf(t, many...), tree.Limits{Bytes: 95}, "does not fit"},
		{"announced", tree.Tar, tarOf(t, big)[:1024], tree.Limits{Bytes: 1 << 20}, `"big" does not fit`},
		{"bomb", tree.TarGz, bomb, tree.Limits{}, "bomb"},
		{"bomb in what is skipped", tree.TarGz, gzipOf(t, tarOf(t, item{name: "p", kind: tar.TypeFifo}, item{name: "../x", kind: tar.TypeReg, size: 110 << 20})), tree.Limits{}, `contains ".."`},
		{"zip bomb", tree.Zip, zipOf(t, big), tree.Limits{}, "bomb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			done, err := unpackInto(t, dir, tc.format, bytes.NewReader(tc.archive), tc.limits)
			if !strings.Contains(errText(err), tc.says) {
				t.Errorf("%+v %v", done, err)
			}
			entries, _ := os.ReadDir(dir)
			if len(entries) != int(done.Files) || tc.format == tree.Zip && len(entries) > 0 {
				t.Errorf("%d are there, said to be %+v", len(entries), done)
			}
			if done.Bytes > 95 && tc.limits.Bytes == 95 {
				t.Errorf("%d bytes", done.Bytes)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// An archive that is none, is cut, or lies about itself ends with an error that
// says so, and leaves no half of a file.
func TestUnpackDamaged(t *testing.T) {
	plain := tarOf(t, item{name: "first", content: "1", kind: tar.TypeReg}, item{name: "second", content: strings.Repeat("2", 5000), kind: tar.TypeReg})
	zipped := zipOf(t, item{name: "first", content: "1"}, item{name: "second", content: strings.Repeat("2", 5000)})
	flipped := bytes.Clone(zipped)
	flipped[bytes.Index(flipped, []byte("second"))+8] ^= 0xff
	crypted := bytes.Clone(zipped)
	crypted[bytes.Index(crypted, []byte("PK\x01\x02"))+8] |= 1
	gz := gzipOf(t, plain)
	badSum := bytes.Clone(gz)
	badSum[len(badSum)-6] ^= 1
	for _, tc := range []struct {
		name    string
		format  tree.Format
		archive []byte
	}{
		{"text", tree.Tar, bytes.Repeat([]byte("hello"), 500)},
		{"text as gzip", tree.TarGz, []byte("hello")},
		{"text as zip", tree.Zip, []byte("hello")},
		{"nothing as gzip", tree.TarGz, nil},
		{"nothing as zip", tree.Zip, nil},
		{"cut tar", tree.Tar, plain[:3000]},
		{"cut gzip", tree.TarGz, gz[:len(gz)/2]},
		{"checksum of gzip", tree.TarGz, badSum},
		{"cut zip", tree.Zip, zipped[:len(zipped)-30]},
		{"flipped zip", tree.Zip, flipped},
		{"encrypted zip", tree.Zip, crypted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			done, err := unpackInto(t, dir, tc.format, bytes.NewReader(tc.archive), tree.Limits{})
			if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v %v", done, err)
			}
			if info, err := os.Stat(filepath.Join(dir, "second")); err == nil && info.Size() != 5000 {
				t.Errorf("half of a file: %d bytes", info.Size())
			}
		})
	}
}

// The errors of the reader are the reader's, and its context ends it.
func TestUnpackSource(t *testing.T) {
	gone := errors.New("gone")
	_, err := unpackInto(t, t.TempDir(), tree.Tar, io.MultiReader(bytes.NewReader(tarOf(t, item{name: "f", content: "x", kind: tar.TypeReg})[:600]), failing{gone}), tree.Limits{})
	if source, ok := errors.AsType[*tree.SourceError](err); !ok || !errors.Is(source, gone) {
		t.Errorf("%v", err)
	}
	root, err := tree.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	endless := io.MultiReader(bytes.NewReader(tarOf(t, item{name: "f", kind: tar.TypeReg, size: 1 << 20})[:512]), zeros{})
	if _, err := tree.Unpack(ctx, root, tree.Tar, slow{endless, ctx}, tree.Limits{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// slow gives one byte at a time, and the last ones when its context has ended.
type slow struct {
	r   io.Reader
	ctx context.Context
}

func (s slow) Read(b []byte) (int, error) {
	if len(b) == 512 {
		return s.r.Read(b)
	}
	<-s.ctx.Done()
	return s.r.Read(b[:1])
}
