package layer

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestRoundTrip(t *testing.T) {
	dir := sample(t)
	first := export(t, dir, Options{})
	back := filepath.Join(t.TempDir(), "back")
	must(t, ReadOverlay(t.Context(), bytes.NewReader(first), back, Limits{Sync: true}))
	same(t, "after a round trip", facts(t, back), facts(t, dir))
	if again := export(t, back, Options{}); !bytes.Equal(again, first) {
		t.Errorf("the same content gives %d other bytes than %d before", len(again), len(first))
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(back, "sparse"), &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("a sparse file takes %d bytes of disk", st.Blocks*512)
	}
	if list := names(t, first); !slices.Contains(list, ".wh.gone") || !slices.Contains(list, "a/.wh.gone too") ||
		!slices.Contains(list, "opaque/.wh..wh..opq") || list[0] != "./" {
		t.Errorf("the marks are missing among %q", list)
	}
}

// TestCreationOrder holds that the order in which files came to be, and where
// the disk put them, leave no trace in the bytes.
func TestCreationOrder(t *testing.T) {
	needRoot(t)
	var archives [2][]byte
	for i := range archives {
		dir := t.TempDir()
		names := []string{"b", "a", "c.d", "c/x", "c-"}
		if i == 1 {
			slices.Reverse(names)
		}
		must(t, os.Mkdir(filepath.Join(dir, "c"), 0o755))
		for _, n := range names {
			must(t, os.WriteFile(filepath.Join(dir, n), []byte(n), 0o644))
		}
		must(t, os.Mkdir(filepath.Join(dir, "z"), 0o755))
		must(t, os.Link(filepath.Join(dir, "c/x"), filepath.Join(dir, "z/x")))
		must(t, os.Chmod(dir, 0o755))
		for _, n := range append(names, "", "c", "z") {
			ts := unix.Timespec{Sec: 1000}
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, n), []unix.Timespec{ts, ts}, 0))
		}
		archives[i] = export(t, dir, Options{})
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Errorf("%q\n%q", names(t, archives[0]), names(t, archives[1]))
	}
	want := []string{"./", "a", "b", "c/", "c/x", "c-", "c.d", "z/", "z/x = c/x"}
	got := names(t, archives[0])
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTarReadsIt holds that the archive is one for others too.
func TestTarReadsIt(t *testing.T) {
	dir := sample(t)
	tool, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("there is no tar here")
	}
	out := t.TempDir()
	cmd := exec.Command(tool, "-x", "--numeric-owner", "-p", "-C", out)
	cmd.Stdin = bytes.NewReader(export(t, dir, Options{}))
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	for name, want := range map[string]string{"a/file": "content", "links/two": "linked", "odd/new\nline": "x"} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestSkip(t *testing.T) {
	dir := sample(t)
	b := export(t, dir, Options{Skip: func(p string) bool { return p == "/a" || p == "/links/one" || p == "/gone" }})
	for _, name := range names(t, b) {
		if name == "a/" || name == "a/file" || name == "links/one" || name == ".wh.gone" {
			t.Errorf("%s is there", name)
		}
	}
	// The file of a link that was left out has its content under the next name.
	entries, err := Entries(t.Context(), bytes.NewReader(b))
	must(t, err)
	for _, e := range entries {
		if e.Path == "/links/two" && (e.Size != 6 || e.Digest == "") {
			t.Errorf("%+v", e)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		make func(dir string) error
		code fault.Code
	}{
		{"a name that is a mark", func(dir string) error { return os.WriteFile(dir+"/.wh.file", nil, 0o600) }, fault.Invalid},
		{"a deletion of one", func(dir string) error { return unix.Mknod(dir+"/.wh.file", unix.S_IFCHR, 0) }, fault.Invalid},
		{"a directory moved by reference", func(dir string) error {
			return unix.Setxattr(dir, "trusted.overlay.redirect", []byte("x"), 0)
		}, fault.Invalid},
		{"an enormous file", func(dir string) error {
			must(t, os.WriteFile(dir+"/f", nil, 0o600))
			return os.Truncate(dir+"/f", 1<<43)
		}, fault.Exhausted},
		{"a chasm", func(dir string) error {
			f, err := os.Open(dir)
			must(t, err)
			for range 2 * maxDepth {
				must(t, unix.Mkdirat(int(f.Fd()), "d", 0o755))
				fd, err := unix.Openat(int(f.Fd()), "d", unix.O_DIRECTORY, 0)
				must(t, err)
				f.Close()
				f = os.NewFile(uintptr(fd), "d")
			}
			return f.Close()
		}, fault.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, tt.make(dir))
			var b bytes.Buffer
			if err := WriteOverlay(t.Context(), dir, &b, Options{MaxBytes: 1 << 30}); fault.CodeOf(err) != tt.code {
				t.Errorf("%v", err)
			}
		})
	}
	if err := WriteOverlay(t.Context(), filepath.Join(t.TempDir(), "none"), &bytes.Buffer{}, Options{}); err == nil {
		t.Error("no directory, no error")
	}
}

// TestOthersAreLeftOut holds that sockets and devices are no part of a layer,
// and do not keep it from being one.
func TestOthersAreLeftOut(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0))
	must(t, unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(dir+"/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
	if got := names(t, export(t, dir, Options{})); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestCancelled(t *testing.T) {
	dir := sample(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := export(t, dir, Options{})
	to := filepath.Join(t.TempDir(), "to")
	_, copyErr := CopyTree(ctx, dir, to)
	_, entriesErr := Entries(ctx, bytes.NewReader(b))
	for what, err := range map[string]error{
		"write":   WriteOverlay(ctx, dir, &bytes.Buffer{}, Options{}),
		"read":    ReadOverlay(ctx, bytes.NewReader(b), to, Limits{}),
		"copy":    copyErr,
		"entries": entriesErr,
	} {
		if !fault.Is(err, fault.Cancelled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Lstat(to); err == nil {
		t.Error("something is left")
	}
}
