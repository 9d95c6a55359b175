package image

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzExtract looks for a combination of entries that reaches out of the
// tree. Every three bytes choose the kind, the name and the target of one.
func FuzzExtract(f *testing.F) {
	names := []string{
		"a", "a/b", "a/b/c", "b", "b/c", "l", "l/a", "l/outside", "l/l/a", "outside", "../outside", "/outside", "a/../../outside",
		".wh.a", ".wh.l", "a/.wh.b", ".wh..wh..opq", "l/.wh..wh..opq", "a/.wh..wh..opq", "..", "../..", "/.", ".", "../../..", "./a/.",
	}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar}
	f.Add([]byte{2, 5, 20, 0, 7, 0})                   // l -> ../.., l/outside
	f.Add([]byte{2, 5, 21, 3, 0, 7, 0, 7, 0})          // l -> /, a = link to l/outside
	f.Add([]byte{1, 0, 0, 2, 5, 0, 0, 6, 0, 0, 17, 0}) // a/, l -> a, l/a, l/.wh..wh..opq
	f.Fuzz(func(t *testing.T, script []byte) {
		var streams [2][]byte
		for layer := range 2 {
			var entries []tarEntry
			for i := layer; i+2 < len(script) && i < 300; i += 3 {
				e := file(names[int(script[i+1])%len(names)], "x")
				e.Typeflag = kinds[int(script[i])%len(kinds)]
				if e.Typeflag != tar.TypeReg {
					e.content = ""
					e.Linkname = names[int(script[i+2])%len(names)]
				}
				entries = append(entries, e)
			}
			streams[layer] = tarOf(t, entries...)
		}
		parent := t.TempDir()
		root := filepath.Join(parent, "a", "root")
		if err := os.MkdirAll(root, 0o755); err != nil {
			t.Fatal(err)
		}
		outside := filepath.Join(parent, "outside")
		if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := newExtractor(root, true, Bounds{Bytes: 1 << 20, Entries: 500})
		if err != nil {
			t.Fatal(err)
		}
		defer x.close()
		for _, stream := range streams {
			_ = x.layer(context.Background(), bytes.NewReader(stream), true)
		}
		for dir, want := range map[string]int{parent: 2, filepath.Dir(root): 1} {
			if names, err := os.ReadDir(dir); err != nil || len(names) != want {
				t.Fatalf("%s holds %v, %v", dir, names, err)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(outside, &st); err != nil || st.Nlink != 1 || st.Mode&0o7777 != 0o600 {
			t.Fatalf("the file outside changed: %+v, %v", st, err)
		}
		if got, _ := os.ReadFile(outside); string(got) != "untouched" {
			t.Fatalf("the file outside holds %q", got)
		}
	})
}
