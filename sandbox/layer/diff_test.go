package layer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// layerOf is a source of an archive.
func layerOf(t testing.TB, id string, items ...item) Source {
	b := archive(t, items...)
	return Source{ID: id, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// baseOf is a base of two directories, of which the upper one hides some.
func baseOf(t testing.TB) *Directories {
	t.Helper()
	needRoot(t)
	low, high := t.TempDir(), t.TempDir()
	write := func(p, content string) {
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(content), 0o644))
	}
	for _, p := range []string{"etc/issue", "etc/hidden", "usr/bin/a", "usr/bin/b", "closed/low", "kept/x"} {
		write(filepath.Join(low, p), "low "+p)
	}
	must(t, os.Symlink("/etc", low+"/out"))
	write(high+"/etc/passwd", "high")
	write(high+"/closed/high", "high")
	must(t, unix.Mknod(high+"/etc/hidden", unix.S_IFCHR, 0))
	must(t, unix.Setxattr(high+"/closed", trustedOpaque, []byte("y"), 0))
	d, err := OpenDirectories(high, low)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

func TestDirectories(t *testing.T) {
	d := baseOf(t)
	for p, want := range map[string]Type{
		"/": Dir, "/etc": Dir, "/etc/issue": File, "/etc/passwd": File, "/etc/hidden": "", "/closed/high": File, "/closed/low": "",
		"/out": Link, "/out/passwd": "", "/none/at/all": "", "/etc/issue/below": "",
	} {
		e, ok, err := d.Entry(p)
		if err != nil || ok != (want != "") || e.Type != want {
			t.Errorf("%s: %+v, %v, %v", p, e, ok, err)
		}
	}
	for p, want := range map[string]string{"/etc": "issue passwd", "/closed": "high", "/out": "", "/none": ""} {
		names, err := d.Names(p)
		slices.Sort(names)
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v", p, got, err)
		}
	}
	if f, err := d.Open("/out/passwd"); !fault.Is(err, fault.NotFound) || f != nil {
		t.Errorf("through a link: %v", err)
	}
}

func TestDiff(t *testing.T) {
	base := baseOf(t)
	mode := reg("etc/issue", "low etc/issue")
	mode.Mode = 0o600
	owner := reg("etc/passwd", "high")
	owner.Uid = 5
	common := layerOf(t, "common", reg("shared", "s"), folder("d/"), reg("d/x", "1"))
	for _, tt := range []struct {
		name     string
		from, to Stack
		want     string
	}{
		{"equal", Stack{common}, Stack{common}, ""},
		{"nothing", nil, nil, ""},
		{"a layer that says nothing new", nil, Stack{layerOf(t, "", reg("etc/issue", "low etc/issue"))}, ""},
		{"added", nil, Stack{common}, "added /d, added /d/x, added /shared"},
		{"and removed", Stack{common}, nil, "removed /d, removed /d/x, removed /shared"},
		{"mode", nil, Stack{layerOf(t, "", mode)}, "changed /etc/issue mode"},
		{"owner", nil, Stack{layerOf(t, "", owner)}, "changed /etc/passwd owner"},
		{"content of the same size", nil, Stack{layerOf(t, "", reg("etc/issue", "LOW etc/issue"))}, "changed /etc/issue content"},
		{"content", Stack{common}, Stack{layerOf(t, "", reg("d/x", "12")), common}, "changed /d/x content"},
		{"type", nil, Stack{layerOf(t, "", soft("etc/issue", "x"))}, "changed /etc/issue type"},
		{"target", nil, Stack{layerOf(t, "", soft("out", "x"))}, "changed /out target"},
		{"a deleted tree of the base", nil, Stack{layerOf(t, "", reg(".wh.usr", ""))}, "removed /usr, removed /usr/bin, removed /usr/bin/a, removed /usr/bin/b"},
		{"an emptied one", nil, Stack{layerOf(t, "", folder("usr/bin/"), reg("usr/bin/.wh..wh..opq", ""), reg("usr/bin/a", "low usr/bin/a"))}, "removed /usr/bin/b"},
		{"a directory that is a file now", nil, Stack{layerOf(t, "", reg("kept", ""))}, "changed /kept type, removed /kept/x"},
		{"back again", Stack{layerOf(t, "", reg("kept", ""))}, nil, "changed /kept type, added /kept/x"},
		{"restored over a deletion", Stack{layerOf(t, "", reg(".wh.usr", ""))}, Stack{layerOf(t, "", reg("usr/bin/a", "low usr/bin/a")), layerOf(t, "", reg(".wh.usr", ""))},
			"added /usr, added /usr/bin, added /usr/bin/a"},
		{"deleted in a lower layer of both", Stack{layerOf(t, "", reg("d/.wh.x", "")), common}, Stack{common}, "added /d/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, err := Diff(t.Context(), tt.from, tt.to, base)
			must(t, err)
			var got []string
			for _, c := range changes {
				got = append(got, strings.TrimSpace(fmt.Sprint(c.Kind, " ", c.Path, " ", c.Why)))
				if c.Type == "" {
					t.Errorf("%+v has no type", c)
				}
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
	changes, err := Diff(t.Context(), nil, Stack{layerOf(t, "", reg(".wh.gone", ""), reg("f", "x"))}, nil)
	if err != nil || len(changes) != 1 || changes[0].Path != "/f" {
		t.Errorf("without a base: %+v, %v", changes, err)
	}
}

func TestReadFile(t *testing.T) {
	base := baseOf(t)
	s := Stack{
		layerOf(t, "", reg("d/.wh.gone", ""), folder("o/"), reg("o/.wh..wh..opq", ""), reg("top", "top"), hard("same", "top")),
		layerOf(t, "", reg("top", "bottom"), reg("d/gone", "x"), reg("d/low", "low"), reg("o/low", "x"), soft("l", "top")),
	}
	for p, want := range map[string]string{
		"/top": "top", "/same": "top", "/d/low": "low", "/etc/issue": "low etc/issue", "/etc/passwd": "high",
		"/d/gone": "NOT_FOUND", "/o/low": "NOT_FOUND", "/etc/hidden": "NOT_FOUND", "/d": "INVALID", "/l": "INVALID", "/usr": "INVALID", "/none": "NOT_FOUND",
	} {
		b, _, err := ReadFile(t.Context(), s, base, p, 100)
		got := string(b)
		if err != nil {
			got = string(fault.CodeOf(err))
		}
		if got != want {
			t.Errorf("%s: %q, %v; want %q", p, got, err, want)
		}
	}
	for _, p := range []string{"/top", "/etc/issue"} {
		if _, _, err := ReadFile(t.Context(), s, base, p, 2); !fault.Is(err, fault.Exhausted) {
			t.Errorf("%s beyond the limit: %v", p, err)
		}
	}
}

func TestTextDiff(t *testing.T) {
	got, err := TextDiff([]byte("a\nb\nc\n"), []byte("a\nB\nc"), "old\nname", "new")
	must(t, err)
	for _, want := range []string{"--- old?name\n", "+++ new\n", "@@ -1,3 +1,3 @@\n", " a\n", "-b\n", "+B\n", "No newline"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if got, err := TextDiff([]byte("x"), []byte("x"), "a", "b"); got != "" || err != nil {
		t.Errorf("equal: %q, %v", got, err)
	}
	if _, err := TextDiff([]byte("x"), []byte("\x00"), "a", "b"); !fault.Is(err, fault.Invalid) {
		t.Errorf("binary: %v", err)
	}
	if _, err := TextDiff([]byte("x"), make([]byte, MaxText+1), "a", "b"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("large: %v", err)
	}
}
