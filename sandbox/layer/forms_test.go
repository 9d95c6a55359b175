package layer

import (
	"archive/tar"
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upper is an archive as gVisor writes them: in no order, names with "./",
// deletions that are hard links to each other.
func upper(t testing.TB) []byte {
	opaque := folder("./d/")
	opaque.PAXRecords = map[string]string{paxXattr + trustedOpaque: "y", paxXattr + "trusted.overlay.origin": "x", paxXattr + "user.colour": "red"}
	acl := reg("./acl", "")
	acl.Mode = 0o664 // as the list has it
	acl.PAXRecords = map[string]string{paxXattr + aclPrefix + "access": "AgAAAAEABgD/////AgAGAOgDAAAEAAQA/////xAABgD/////IAAEAP////8"}
	return archive(t,
		folder("./"), reg("./z", "last"), opaque, reg("./d/f", "linked"), typed("./gone", tar.TypeChar), hard("./d/idle", "./gone"),
		folder("./a/"), hard("./a/gone too", "./gone"), hard("./a/link", "./d/f"), soft("./soft", "z"), typed("./fifo", tar.TypeFifo), acl, folder("./.sandgate/"), reg("./.sandgate/guest", "x"),
		item{tar.Header{Name: "./null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, ""},
	)
}

func TestUpperForm(t *testing.T) {
	needRoot(t)
	skip := Options{Skip: func(p string) bool { return p == "/.sandgate" }}
	var neutral bytes.Buffer
	must(t, FromUpper(t.Context(), bytes.NewReader(upper(t)), &neutral, skip))
	want := []string{
		"./", ".wh.gone", "a/", "a/.wh.gone too", "a/link", "acl", "d/", "d/.wh..wh..opq", "d/f = a/link", "fifo", "soft -> z", "z",
	}
	if got := names(t, neutral.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, ReadOverlay(t.Context(), bytes.NewReader(neutral.Bytes()), dir, Limits{}))
	if got := strings.Join(facts(t, dir), "\n"); !strings.Contains(got, `system.posix_acl_access=`) || !strings.Contains(got, `trusted.overlay.opaque="y" user.colour="red"`) {
		t.Errorf("attributes are lost: %s", got)
	}
	if again := export(t, dir, Options{}); !bytes.Equal(again, neutral.Bytes()) {
		t.Errorf("the overlay form gives %q", names(t, again))
	}

	// And back: gVisor looks directories up by their name with a slash.
	var up, once bytes.Buffer
	must(t, ToUpper(t.Context(), bytes.NewReader(neutral.Bytes()), &up, Limits{}))
	got := names(t, up.Bytes())
	for _, name := range []string{"./", "./a/", "./d/", "./gone char", "./a/gone too char", "./d/f = ./a/link", "./soft -> z"} {
		if !slices.Contains(got, name) {
			t.Errorf("%q is missing in %q", name, got)
		}
	}
	must(t, FromUpper(t.Context(), bytes.NewReader(up.Bytes()), &once, Options{}))
	if !bytes.Equal(once.Bytes(), neutral.Bytes()) {
		t.Errorf("there and back: %q", names(t, once.Bytes()))
	}
	h, err := tar.NewReader(bytes.NewReader(up.Bytes())).Next()
	if err != nil || !strings.HasPrefix(h.Name, "./") {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestSampleInBothForms(t *testing.T) {
	neutral := export(t, sample(t), Options{})
	var up, back bytes.Buffer
	must(t, ToUpper(t.Context(), bytes.NewReader(neutral), &up, Limits{}))
	must(t, FromUpper(t.Context(), bytes.NewReader(up.Bytes()), &back, Options{}))
	if !bytes.Equal(back.Bytes(), neutral) {
		t.Error("a layer is another after the way there and back")
	}
}

func TestMerge(t *testing.T) {
	bottom := archive(t, folder("./"), folder("kept/"), reg("kept/low", "low"), reg("kept/both", "low"), folder("gone/"), reg("gone/x", ""),
		folder("emptied/"), reg("emptied/low", ""), reg("replaced", "low"), folder("turned/"), reg("turned/x", ""), reg(".wh.base", ""),
		folder("old/"), reg("old/.wh..wh..opq", ""), reg("was", "file"), reg("l1", "links"), hard("l2", "l1"))
	top := archive(t, reg("old/.wh.idle", ""), reg("kept/both", "high"), reg("kept/high", "high"), reg(".wh.gone", ""), folder("emptied/"), reg("emptied/.wh..wh..opq", ""),
		reg("emptied/high", ""), reg("replaced", "high"), reg("turned", "file"), folder("base/"), folder("old/"), reg("old/new", ""),
		folder("was/"), reg("l1", "alone"))
	var merged bytes.Buffer
	must(t, Merge(t.Context(), &merged, bytes.NewReader(top), bytes.NewReader(bottom)))
	want := []string{"./", ".wh.gone", "base/", "base/.wh..wh..opq", "emptied/", "emptied/.wh..wh..opq", "emptied/high", "kept/", "kept/both", "kept/high", "kept/low",
		"l1", "l2", "old/", "old/.wh..wh..opq", "old/new", "replaced", "turned", "was/", "was/.wh..wh..opq"}
	if got := names(t, merged.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	entries, err := Entries(t.Context(), &merged)
	must(t, err)
	sizes := make(map[string]int64)
	for _, e := range entries {
		sizes[e.Path] = e.Size
	}
	if sizes["/kept/both"] != 4 || sizes["/l1"] != 5 || sizes["/l2"] != 5 || sizes["/replaced"] != 4 {
		t.Errorf("%v", sizes)
	}
	var one, none bytes.Buffer
	neutral := archive(t, folder("./"))
	must(t, Merge(t.Context(), &none))
	must(t, Merge(t.Context(), &one, bytes.NewReader(neutral)))
	if !slices.Equal(names(t, none.Bytes()), []string{"./"}) || !slices.Equal(names(t, one.Bytes()), []string{"./"}) {
		t.Errorf("%q, %q", names(t, none.Bytes()), names(t, one.Bytes()))
	}
	var flat bytes.Buffer
	must(t, Flatten(t.Context(), &flat, bytes.NewReader(top), bytes.NewReader(bottom)))
	want = slices.DeleteFunc(want, func(name string) bool { return strings.Contains(name, ".wh.") })
	if got := names(t, flat.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var up bytes.Buffer
	must(t, MergeToUpper(t.Context(), &up, bytes.NewReader(top), bytes.NewReader(bottom)))
	if got := names(t, up.Bytes()); !slices.Contains(got, "./gone char") || !slices.Contains(got, "./kept/low") {
		t.Errorf("%q", got)
	}
}

func TestEntries(t *testing.T) {
	list, err := Entries(t.Context(), bytes.NewReader(archive(t, reg("d/f", "hello"), hard("d/h", "d/f"), reg("d/.wh.x", ""), reg("d/.wh..wh..opq", ""), soft("d-l", "d"))))
	must(t, err)
	byPath := make(map[string]Entry)
	var paths []string
	for _, e := range list {
		byPath[e.Path] = e
		paths = append(paths, e.Path)
	}
	if want := []string{"/", "/d", "/d/f", "/d/h", "/d/x", "/d-l"}; !slices.Equal(paths, want) {
		t.Errorf("got %q, want %q", paths, want)
	}
	const digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if f, h := byPath["/d/f"], byPath["/d/h"]; f.Digest != digest || f.Size != 5 || h.Digest != digest || h.Same != "/d/f" || h.Size != 5 {
		t.Errorf("%+v %+v", f, h)
	}
	if d := byPath["/d"]; !d.Opaque || !d.Implied || !byPath["/d/x"].Deleted || byPath["/d-l"].Target != "d" {
		t.Errorf("%+v", byPath)
	}
}
