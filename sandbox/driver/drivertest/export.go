package drivertest

import (
	"archive/tar"
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "embed" // the golden layer

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

func exportTests() []test {
	all := []test{
		{name: "Export/Deterministic", run: testExportDeterministic},
		{name: "Export/OwnFilesAreNotInIt", walls: true, run: testExportOwnFiles},
		{name: "Export/Deletions", walls: true, run: testExportDeletions},
		{name: "Export/NoSavedLayer", run: testExportInvalid},
		{name: "Import/Exported", run: testImportExported},
		{name: "Import/Golden", run: testImportGolden},
		{name: "Import/OfAnotherTool", run: testImportForeign},
		{name: "Import/Hostile", run: testImportHostile},
		{name: "Import/Limit", run: testImportLimit},
	}
	for i := range all {
		all[i].needs = driver.FeatureSave
	}
	return all
}

// export is a saved layer as an OCI image layer.
func (e *env) export(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := e.saver(t).Export(ctx(t), dir, &b); err != nil {
		t.Fatalf("export: %s", causes(err))
	}
	return b.Bytes()
}

// imports makes a saved layer of an archive.
func (e *env) imports(t *testing.T, archive []byte) string {
	t.Helper()
	dir := e.layerDir(t)
	if err := e.saver(t).Import(ctx(t), dir, bytes.NewReader(archive), 0); err != nil {
		t.Fatalf("import: %s", causes(err))
	}
	return dir
}

// index is an archive by its paths.
func index(t *testing.T, archive []byte) map[string]layer.Entry {
	t.Helper()
	list, err := layer.Entries(ctx(t), bytes.NewReader(archive))
	if err != nil {
		t.Fatalf("the exported layer: %s", causes(err))
	}
	all := make(map[string]layer.Entry)
	for _, e := range list {
		all[e.Path] = e
	}
	return all
}

func testExportDeterministic(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "mkdir c; cd c; "+content)
	dir := b.save(t)
	first := e.export(t, dir)
	if again := e.export(t, dir); !bytes.Equal(first, again) {
		t.Error("the same layer gives other bytes")
	}
	second := b.save(t)
	entries := index(t, first)
	for path, other := range index(t, e.export(t, second)) {
		if !strings.HasPrefix(path, "/workspace/") {
			continue
		}
		if mine := entries[path]; mine.Digest != other.Digest || mine.Mode != other.Mode || !mine.ModTime.Equal(other.ModTime) || mine.Same != other.Same {
			t.Errorf("saved twice, %s is %+v and %+v", path, mine, other)
		}
	}
	f := entries["/workspace/c/d/deep/f"]
	if f.Type != layer.File || f.Mode != 0o640 || f.Size != 5 || f.ModTime.Year() != 2001 {
		t.Errorf("a file is exported as %+v", f)
	}
	if l := entries["/workspace/c/soft"]; l.Target != "../../up" {
		t.Errorf("a link is exported as %+v", l)
	}
	if run := entries["/workspace/c/run"]; run.Mode != 0o4755 {
		t.Errorf("a program is exported as %+v", run)
	}
	links := 0
	for _, name := range []string{"one", "two", "d/three"} {
		if entries["/workspace/c/"+name].Same != "" {
			links++
		}
	}
	if links != 2 {
		t.Errorf("%d of 3 names of one file are links", links)
	}
}

// testExportOwnFiles holds that nothing the driver has put into the sandbox is
// taken for the sandbox's own.
func testExportOwnFiles(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "echo x >f; echo o >/etc/own; cat /etc/hosts /etc/hostname /etc/resolv.conf 2>/dev/null; ls /proc /sys /dev /.sandgate >/dev/null")
	for _, step := range []string{"running", "stopped", "started again"} {
		switch step {
		case "stopped":
			b.stop(t, graces[0])
		case "started again":
			b.start(t)
		}
		for path, entry := range index(t, e.export(t, b.save(t))) {
			if entry.Type == layer.Dir && !within(path, "/proc", "/sys", "/dev", "/.sandgate") || path == "/etc/own" || path == "/workspace/f" {
				continue
			}
			t.Errorf("%s: %s is in the layer: %+v", step, path, entry)
		}
	}
}

func within(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

func testExportDeletions(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "rm /bin/true; rm -r /home; rm -r /var; mkdir /var; echo x >/var/f; chown 12:34 /etc/issue")
	entries := index(t, e.export(t, b.save(t)))
	if !entries["/bin/true"].Deleted || !entries["/home"].Deleted {
		t.Errorf("deletions are exported as %+v and %+v", entries["/bin/true"], entries["/home"])
	}
	if v := entries["/var"]; v.Type != layer.Dir || !v.Opaque {
		t.Errorf("a directory that was made anew is exported as %+v", v)
	}
	if i := entries["/etc/issue"]; i.UID != 12 || i.GID != 34 || i.Size != int64(len(issue)+1) {
		t.Errorf("a file with another owner is exported as %+v", i)
	}
}

func testExportInvalid(t *testing.T, e *env) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		var b bytes.Buffer
		wantCode(t, e.saver(t).Export(ctx(t), dir, &b), fault.Invalid)
	}
}

// testImportExported holds that a layer is the same after it was carried.
func testImportExported(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "umask 022; mkdir c; cd c; "+content)
	want := b.sh(t, "cd c; "+seen)
	first := e.export(t, b.save(t))
	dir := e.imports(t, first)
	if again := e.export(t, dir); !bytes.Equal(again, first) {
		t.Errorf("%d bytes became %d others", len(first), len(again))
	}
	if got := e.boot(t, from(dir)).sh(t, "cd c; "+seen); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// golden was written by GoldenLayer, and stands for what another driver has
// exported.
//
//go:embed testdata/layer.tar
var golden []byte

func testImportGolden(t *testing.T, e *env) {
	dir := e.imports(t, golden)
	if again := e.export(t, dir); !bytes.Equal(again, golden) {
		t.Errorf("the layer of another driver, of %d bytes, is given on as %d others", len(golden), len(again))
	}
	b := e.boot(t, from(dir))
	if got := b.sh(t, "cd golden; "+goldenLook); got != goldenSeen {
		t.Errorf("got\n%s\nwant\n%s", got, goldenSeen)
	}
	if e.h.NoWalls == "" {
		if got := b.sh(t, "ls /bin/true /home 2>/dev/null; cat /etc/issue; stat -c %u:%g /workspace/golden/owned"); got != "golden\n1234:2345" {
			t.Errorf("the files of the system are %q", got)
		}
	}
	// What it deletes of a layer below is gone, what it does not stays.
	below := e.boot(t)
	below.sh(t, "mkdir -p golden/opaque golden/merged; echo x >golden/gone; echo x >golden/opaque/low; echo x >golden/merged/low")
	over := e.boot(t, from(dir, below.save(t)))
	if got := over.sh(t, "cd golden; ls gone 2>/dev/null; ls opaque merged"); e.h.NoWalls == "" && got != "merged:\nhigh\nlow\n\nopaque:\nhigh" && got != "opaque:\nhigh\n\nmerged:\nhigh\nlow" {
		t.Errorf("over another layer: %q", got)
	}
}

// testImportForeign is a layer as other tools write them: no root, parents left
// out, names with a dot, ids with names, time in seconds.
func testImportForeign(t *testing.T, e *env) {
	archive := tarball(t,
		&tar.Header{Name: "./workspace/deep/down/f", Typeflag: tar.TypeReg, Mode: 0o644, Uname: "nobody", ModTime: time.Unix(1e9, 0)},
		&tar.Header{Name: "workspace/dir", Typeflag: tar.TypeDir, Mode: 0o700},
		&tar.Header{Name: "workspace/dir/.wh.gone", Typeflag: tar.TypeReg},
		&tar.Header{Name: "workspace/dir/link", Linkname: "./workspace/deep/down/f", Typeflag: tar.TypeLink},
	)
	b := e.boot(t, from(e.imports(t, archive)))
	if got := b.sh(t, "cat deep/down/f; stat -c %Y deep/down/f; [ dir/link -ef deep/down/f ] && stat -c %a dir; cat dir/gone 2>/dev/null; ls dir/link"); got != "1000000000\n700\ndir/link" {
		t.Errorf("got %q", got)
	}
}

// tarball is an archive of empty entries.
func tarball(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testImportHostile(t *testing.T, e *env) {
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	link := func(name, to string, kind byte) *tar.Header {
		return &tar.Header{Name: name, Linkname: to, Typeflag: kind}
	}
	steer := file("f")
	steer.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.redirect": "/etc"}
	outside := t.TempDir()
	whole := tarball(t, file("workspace/f"))
	for name, archive := range map[string][]byte{
		"an absolute name":      tarball(t, file("/workspace/f")),
		"a name that climbs":    tarball(t, file("workspace/../../f")),
		"through a link":        tarball(t, link("l", outside, tar.TypeSymlink), file("l/f")),
		"a mark through a link": tarball(t, link("l", outside, tar.TypeSymlink), file("l/.wh.f")),
		"a link to the host":    tarball(t, link("h", "/etc/passwd", tar.TypeLink)),
		"a link that climbs":    tarball(t, link("h", "../../../../etc/passwd", tar.TypeLink)),
		"a mark that climbs":    tarball(t, file(".wh...")),
		"a disk":                tarball(t, &tar.Header{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 8}),
		"a memory device":       tarball(t, &tar.Header{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}),
		"twice the same":        tarball(t, file("f"), file("./f")),
		"a long name":           tarball(t, file(strings.Repeat("n", 300))),
		"a name of a megabyte":  tarball(t, file(strings.Repeat("n", 1<<20-100))),
		"a steering attribute":  tarball(t, steer),
		"a part of an archive":  whole[:len(whole)-1024],
		"half a header":         whole[:300],
		"no archive":            []byte(strings.Repeat("no archive ", 100)),
		"nothing":               {},
	} {
		dir := e.layerDir(t)
		err := e.saver(t).Import(ctx(t), dir, bytes.NewReader(archive), 0)
		t.Log(name, err)
		wantCode(t, err, fault.Invalid)
		wantAbsent(t, dir)
	}
	if left, _ := filepath.Glob(filepath.Join(outside, "*")); len(left) > 0 {
		t.Errorf("%v was made outside", left)
	}
}

func testImportLimit(t *testing.T, e *env) {
	archive := tarball(t, &tar.Header{Name: "workspace/f", Typeflag: tar.TypeReg, Mode: 0o644, Size: 100_000})
	s := e.saver(t)
	dir := e.layerDir(t)
	wantCode(t, s.Import(ctx(t), dir, bytes.NewReader(archive), 99_999), fault.Exhausted)
	wantAbsent(t, dir)
	if err := s.Import(ctx(t), dir, bytes.NewReader(archive), 100_000); err != nil {
		t.Fatalf("import: %s", causes(err))
	}
	wantCode(t, s.Import(ctx(t), dir, bytes.NewReader(archive), 0), fault.Exists)
	if got := e.boot(t, from(dir)).sh(t, "stat -c %s f"); got != "100000" {
		t.Errorf("got %q", got)
	}
}
