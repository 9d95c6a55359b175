package layer

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// script turns bytes into an archive: every three choose the kind, the name
// and the target of one entry.
func script(t testing.TB, b []byte) []byte {
	names := []string{
		"a", "a/b", "a/b/c", "b", "b/c", "l", "l/a", "l/outside", "outside", "../outside", "/outside", "a/../../outside",
		".wh.a", ".wh.l", "a/.wh.b", ".wh..wh..opq", "l/.wh..wh..opq", "a/.wh..wh..opq", "..", "../..", "/.", ".", "./a/.", ".wh...", "a/.wh.",
	}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo}
	var items []item
	for i := 0; i+2 < len(b) && i < 300; i += 3 {
		it := typed(names[int(b[i+1])%len(names)], kinds[int(b[i])%len(kinds)])
		if it.Typeflag == tar.TypeReg {
			it.content = "x"
		} else {
			it.Linkname = names[int(b[i+2])%len(names)]
		}
		it.Mode = 0o755
		items = append(items, it)
	}
	return archive(t, items...)
}

// FuzzReadOverlay looks for entries that together reach out of the directory,
// or that make a layer which cannot be written again.
func FuzzReadOverlay(f *testing.F) {
	f.Add([]byte{2, 5, 19, 0, 7, 0})                  // l -> ../.., l/outside
	f.Add([]byte{1, 0, 0, 2, 5, 0, 0, 6, 0})          // a/, l -> a, l/a
	f.Add([]byte{0, 12, 0, 1, 0, 0, 0, 1, 0})         // .wh.a, a/, a/b
	f.Add([]byte{0, 0, 0, 3, 3, 0, 3, 8, 3, 0, 1, 0}) // a, b = a, outside = b, a/b
	f.Fuzz(func(t *testing.T, b []byte) {
		needRoot(t)
		parent := t.TempDir()
		outside := filepath.Join(parent, "outside")
		must(t, os.WriteFile(outside, []byte("untouched"), 0o600))
		dir := filepath.Join(parent, "in", "dir")
		must(t, os.Mkdir(filepath.Dir(dir), 0o755))
		err := ReadOverlay(t.Context(), bytes.NewReader(script(t, b)), dir, Limits{Bytes: 1 << 20, Entries: 500})
		want := 1
		if err != nil {
			want = 0
		}
		for d, n := range map[string]int{parent: 2, filepath.Dir(dir): want} {
			if left, err := os.ReadDir(d); err != nil || len(left) != n {
				t.Fatalf("%s holds %v, %v", d, left, err)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(outside, &st); err != nil || st.Nlink != 1 || st.Mode&0o7777 != 0o600 || st.Size != 9 {
			t.Fatalf("the file outside changed: %+v, %v", st, err)
		}
		if err != nil {
			return
		}
		once := export(t, dir, Options{})
		again := filepath.Join(parent, "again")
		must(t, ReadOverlay(t.Context(), bytes.NewReader(once), again, Limits{}))
		if twice := export(t, again, Options{}); !bytes.Equal(once, twice) {
			t.Fatalf("%q became %q", names(t, once), names(t, twice))
		}
		var up, back bytes.Buffer
		must(t, ToUpper(t.Context(), bytes.NewReader(once), &up, Limits{}))
		must(t, FromUpper(t.Context(), bytes.NewReader(up.Bytes()), &back, Options{}))
		if !bytes.Equal(once, back.Bytes()) {
			t.Fatalf("%q came back as %q", names(t, once), names(t, back.Bytes()))
		}
	})
}

// FuzzEntries gives any bytes at all: no panic, and a list that makes sense.
func FuzzEntries(f *testing.F) {
	f.Add(archive(f, folder("d"), reg("d/f", "x"), hard("h", "d/f"), reg("d/.wh.g", "")))
	f.Add(archive(f, soft("l", "x"), xattr("user.colour", "red")))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Entries(t.Context(), bytes.NewReader(b))
		if err != nil {
			return
		}
		seen := make(map[string]bool)
		for i, e := range list {
			switch {
			case seen[e.Path]:
				t.Fatalf("%q is there twice", e.Path)
			case e.Path != "/" && !seen[filepath.Dir(e.Path)]:
				t.Fatalf("%q comes before what it is in", e.Path)
			case e.Deleted != (e.Type == ""):
				t.Fatalf("%+v", list[i])
			}
			seen[e.Path] = true
		}
	})
}
