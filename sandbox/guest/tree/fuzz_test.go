package tree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// FuzzUnpack unpacks anything. It ends, with an error for people or without,
// and nothing is made outside of the directory.
func FuzzUnpack(f *testing.F) {
	items := []item{
		{name: "d/", kind: tar.TypeDir}, {name: "d/f", content: "content", kind: tar.TypeReg}, {name: "l", link: "d", kind: tar.TypeSymlink},
		{name: "out", link: "../..", kind: tar.TypeSymlink}, {name: "l/g", content: "g", kind: tar.TypeReg},
	}
	plain := tarOf(f, append(items, item{name: "h", link: "d/f", kind: tar.TypeLink}, item{name: "out/evil", content: "x", kind: tar.TypeReg})...)
	f.Add(plain, uint8(0))
	f.Add(gzipOf(f, plain), uint8(1))
	f.Add(zipOf(f, append(items, item{name: "out/evil", content: "x"})...), uint8(2))
	var odd bytes.Buffer
	dir := f.TempDir()
	oddTree(f, dir)
	if _, err := tree.Pack(f.Context(), dir, tree.TarGz, &odd); err != nil {
		f.Fatal(err)
	}
	f.Add(odd.Bytes(), uint8(1))
	formats := []tree.Format{tree.Tar, tree.TarGz, tree.Zip}
	f.Fuzz(func(t *testing.T, archive []byte, format uint8) {
		above := t.TempDir()
		inner := filepath.Join(above, "a/b")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		done, err := unpackInto(t, inner, formats[int(format)%len(formats)], bytes.NewReader(archive), tree.Limits{Bytes: 1 << 20, Entries: 1000})
		if done.Bytes > 1<<20 || done.Files+done.Dirs+done.Links > 1000 {
			t.Errorf("more than the limits: %+v", done)
		}
		if err != nil {
			_, known := errors.AsType[*fault.Error](err)
			_, path := errors.AsType[*os.PathError](err)
			if !known && !path {
				t.Errorf("%v (%T)", err, err)
			}
			if known && strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("%q", err)
			}
		}
		for _, dir := range []string{above, above + "/a"} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("outside: %v %v", entries, err)
			}
		}
		// What came in can be packed and removed, whatever it is.
		os.Chmod(inner, 0o755)
		if err := tree.Remove(t.Context(), inner); err != nil {
			t.Error(err)
		}
	})
}
