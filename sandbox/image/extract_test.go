package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// unpack extracts streams, one per layer, into a new tree and returns it.
func unpack(t testing.TB, bounds Bounds, layers ...[]byte) (string, error) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	x, err := newExtractor(root, os.Geteuid() != 0, bounds.orDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	for _, l := range layers {
		if err := x.layer(context.Background(), bytes.NewReader(l), true); err != nil {
			return root, err
		}
	}
	return root, nil
}

func TestExtract(t *testing.T) {
	tests := []struct {
		name   string
		layers [][]tarEntry
		want   map[string]string
	}{
		{
			name:   "all kinds",
			layers: [][]tarEntry{{dir("a/"), file("a/f", "x"), symlink("a/l", "f"), hardlink("a/h", "a/f"), file("./b/c/d", "implicit parents")}},
			want:   map[string]string{"a": "dir", "a/f": "x", "a/l": "-> f", "a/h": "x", "b": "dir", "b/c": "dir", "b/c/d": "implicit parents"},
		},
		{
			name:   "names from the root are names in the tree",
			layers: [][]tarEntry{{file("/etc/motd", "x"), hardlink("/etc/again", "/etc/motd")}},
			want:   map[string]string{"etc": "dir", "etc/motd": "x", "etc/again": "x"},
		},
		{
			name:   "a parent that is a link stays one",
			layers: [][]tarEntry{{dir("usr/bin"), symlink("bin", "usr/bin"), symlink("var", "/usr"), file("bin/sh", "x"), file("var/y", "z")}},
			want:   map[string]string{"usr": "dir", "usr/bin": "dir", "bin": "-> usr/bin", "var": "-> /usr", "usr/bin/sh": "x", "usr/y": "z"},
		},
		{
			name:   "a parent link that climbs ends at the root of the tree",
			layers: [][]tarEntry{{symlink("up", "../../../../.."), file("up/f", "x"), symlink("abs", "/../../d"), file("abs/g", "y")}},
			want:   map[string]string{"up": "-> ../../../../..", "f": "x", "abs": "-> /../../d", "d": "dir", "d/g": "y"},
		},
		{
			name:   "later entries win, whatever they replace",
			layers: [][]tarEntry{{file("a", "1"), file("a", "2"), dir("d"), file("d/x", "x"), file("d", "file"), symlink("l", "/"), dir("l"), file("l/in", "y")}},
			want:   map[string]string{"a": "2", "d": "file", "l": "dir", "l/in": "y"},
		},
		{
			name:   "a file over a link does not write through it",
			layers: [][]tarEntry{{file("target", "keep"), symlink("l", "target"), file("l", "new")}},
			want:   map[string]string{"target": "keep", "l": "new"},
		},
		{
			name: "a directory kept from a lower layer keeps its files",
			layers: [][]tarEntry{
				{dir("d"), file("d/old", "1"), symlink("link", "d")},
				{dir("d"), file("d/new", "2"), dir("link"), file("link/x", "3")},
			},
			want: map[string]string{"d": "dir", "d/old": "1", "d/new": "2", "link": "dir", "link/x": "3"},
		},
		{
			name: "whiteouts hide files and directories of lower layers",
			layers: [][]tarEntry{
				{dir("d"), file("d/a", "1"), file("d/b", "1"), dir("e/f"), file("e/f/g", "1"), symlink("l", "d")},
				{file("d/.wh.a", ""), file(".wh.e", ""), file(".wh.l", ""), file(".wh.missing", ""), file(".wh..wh.plnk", "")},
			},
			want: map[string]string{"d": "dir", "d/b": "1"},
		},
		{
			name: "a whiteout does not hide what its own layer has",
			layers: [][]tarEntry{
				{file("a", "old")},
				{file("a", "new"), file(".wh.a", "")},
			},
			want: map[string]string{"a": "new"},
		},
		{
			name: "an opaque directory, whose marker comes late",
			layers: [][]tarEntry{
				{dir("d/s"), file("d/a", "1"), file("d/s/old", "1"), dir("d/gone/x")},
				{dir("d"), file("d/n", "2"), file("d/s/new", "2"), file("d/.wh..wh..opq", "")},
			},
			want: map[string]string{"d": "dir", "d/n": "2", "d/s": "dir", "d/s/new": "2"},
		},
		{
			name: "devices and pipes are left out",
			layers: [][]tarEntry{{
				tarEntry{tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, ""},
				tarEntry{tar.Header{Name: "wh", Typeflag: tar.TypeChar}, ""},
				tarEntry{tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}, ""},
				tarEntry{tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}, ""},
				file("f", "x"),
			}},
			want: map[string]string{"f": "x"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			root, err := unpack(t, Bounds{}, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := tree(t, root); !maps.Equal(got, tt.want) {
				t.Errorf("tree = %v\nwant   %v", got, tt.want)
			}
		})
	}
	if !t.Failed() {
		asNobody(t)
	}
}

func TestExtractRefuses(t *testing.T) {
	deep := strings.Repeat("d/", maxDepth+2) + "f"
	halfway := strings.Repeat("d/", maxDepth-8)
	many := make([]tarEntry, 60)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%d", i), "")
	}
	loop := []tarEntry{symlink("a", "b"), symlink("b", "a"), file("a/f", "")}
	tests := []struct {
		name    string
		entries []tarEntry
		bounds  Bounds
	}{
		{name: "..", entries: []tarEntry{file("../outside", "x")}},
		{name: ".. inside", entries: []tarEntry{file("a/../../outside", "x")}},
		{name: "a hard link to ..", entries: []tarEntry{hardlink("h", "../outside")}},
		{name: "a hard link to a directory", entries: []tarEntry{dir("d"), hardlink("h", "d")}},
		{name: "an empty link", entries: []tarEntry{symlink("l", "")}},
		{name: "an endless link", entries: []tarEntry{symlink("l", strings.Repeat("a", maxPath+1))}},
		{name: "a long name", entries: []tarEntry{file(strings.Repeat("n", maxName+1), "")}},
		{name: "a deep name", entries: []tarEntry{file(deep, "")}},
		{name: "a name deep through a link", entries: []tarEntry{dir(halfway), symlink("l", halfway), file("l/"+halfway+"f", "")}},
		{name: "links in a circle", entries: loop},
		{name: "an entry below a file", entries: []tarEntry{file("f", ""), file("f/g", "")}},
		{name: "a whiteout of ..", entries: []tarEntry{file("d/.wh...", "")}},
		{name: "a strange owner", entries: []tarEntry{{tar.Header{Name: "f", Uid: 1 << 32}, ""}}},
		{name: "too many entries", entries: many, bounds: Bounds{Entries: 50}},
		{name: "too many bytes", entries: []tarEntry{file("f", strings.Repeat("x", 100_000))}, bounds: Bounds{Bytes: 50_000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, err := unpack(t, tt.bounds, tarOf(t, tt.entries...))
			if !errors.Is(err, errHostile) {
				t.Errorf("error = %v, want a refusal", err)
			}
			if names, _ := os.ReadDir(filepath.Dir(root)); len(names) != 1 {
				t.Errorf("something appeared beside the tree: %v", names)
			}
		})
	}
	t.Run("a hard link out through a link", func(t *testing.T) {
		outside := filepath.Join(t.TempDir(), "outside")
		if err := os.WriteFile(outside, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := unpack(t, Bounds{}, tarOf(t, symlink("l", filepath.Dir(outside)), hardlink("h", "l/outside")))
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error = %v, want none such inside of the tree", err)
		}
		if fi, _ := os.Stat(outside); fi.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Error("a file outside of the tree was linked")
		}
	})
	t.Run("sparse beyond the bounds", func(t *testing.T) {
		// 1 TiB of holes in a stream of some hundred bytes.
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		hdr := &tar.Header{Name: "sparse", Typeflag: tar.TypeReg, Size: 512, Mode: 0o644, Format: tar.FormatPAX}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		// The map of a GNU sparse file, format 1.0: one piece of 0 bytes at the end.
		content := make([]byte, 512)
		copy(content, "1\n1099511627776\n0\n")
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		pax := paxHeader(t, map[string]string{
			"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "big", "GNU.sparse.realsize": "1099511627776",
		})
		if _, err := unpack(t, Bounds{}, append(pax, buf.Bytes()...)); !errors.Is(err, errHostile) {
			t.Errorf("error = %v, want a refusal", err)
		}
	})
	asNobody(t)
}

// paxHeader writes the extended header entry that goes before another one.
func paxHeader(t *testing.T, records map[string]string) []byte {
	t.Helper()
	var body strings.Builder
	for k, v := range records {
		n := len(k) + len(v) + 3 // space, =, newline, and then the length itself
		for len(fmt.Sprint(n+len(fmt.Sprint(n)))) != len(fmt.Sprint(n)) {
			n++
		}
		fmt.Fprintf(&body, "%d %s=%s\n", n+len(fmt.Sprint(n)), k, v)
	}
	block := make([]byte, 512)
	copy(block, "pax")
	copy(block[100:], "0000644\x000000000\x000000000\x00")
	copy(block[124:], fmt.Sprintf("%011o\x00", body.Len()))
	copy(block[136:], "00000000000\x00")
	block[156] = tar.TypeXHeader
	copy(block[257:], "ustar\x0000")
	copy(block[148:], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	data := make([]byte, (body.Len()+511)/512*512)
	copy(data, body.String())
	return slices.Concat(block, data)
}

// A set-user-id program keeps its owner, its mode and its capabilities where
// the server may give them; elsewhere it keeps its mode.
func TestExtractAttributes(t *testing.T) {
	capability := []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_raw=ep
	stream := tarOf(t,
		tarEntry{tar.Header{Name: "su", Mode: 0o4755, Uid: 7, Gid: 8}, "x"},
		tarEntry{tar.Header{Name: "ping", Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{
			"SCHILY.xattr." + capabilityXattr: string(capability), "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.x": "y"}}, "x"},
		tarEntry{tar.Header{Name: "shut", Typeflag: tar.TypeDir, Mode: 0o040000, Uid: 7}, ""},
		tarEntry{tar.Header{Name: "shut/in", Mode: 0o100000}, "x"},
		tarEntry{tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd", Uid: 9}, ""},
	)
	root, err := unpack(t, Bounds{}, stream)
	if err != nil {
		t.Fatal(err)
	}
	asRoot := os.Geteuid() == 0
	stat := func(name string) (uint32, uint32) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, name), &st); err != nil {
			t.Fatal(err)
		}
		return st.Mode & 0o7777, st.Uid
	}
	want := map[string][2]uint32{"su": {0o4755, 7}, "shut": {0, 7}, "shut/in": {0, 0}, "link": {0o777, 9}}
	if !asRoot {
		me := uint32(os.Getuid())
		want = map[string][2]uint32{"su": {0o4755, me}, "shut": {0o700, me}, "shut/in": {0o400, me}, "link": {0o777, me}}
	}
	for name, w := range want {
		if mode, uid := stat(name); mode != w[0] || uid != w[1] {
			t.Errorf("%s has mode %o and owner %d, want %o and %d", name, mode, uid, w[0], w[1])
		}
	}
	var names [256]byte
	n, err := unix.Llistxattr(filepath.Join(root, "ping"), names[:])
	if err != nil {
		t.Fatal(err)
	}
	wantNames := ""
	if asRoot {
		wantNames = capabilityXattr + "\x00"
	}
	if got := string(names[:n]); got != wantNames {
		t.Errorf("extended attributes = %q, want %q", got, wantNames)
	}
	if _, err := digestTree(context.Background(), root); err != nil {
		t.Errorf("the tree cannot be digested: %v", err)
	}
	asNobody(t)
}
