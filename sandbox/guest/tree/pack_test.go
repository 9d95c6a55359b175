package tree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// oddTree makes a tree with names, modes, times and links of every kind, and
// what is to be skipped in it.
func oddTree(t testing.TB, root string) (skipped int64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return root + "/" + name }
	for i, name := range []string{
		"plain", "späce and ünicode", "new\nline", "-rf", "\x1b[2J", "not\xffutf8\xfe", "back\\slash", `"quoted"`, "…", strings.Repeat("l", 255),
		"*", "a:b", " ", "%s%n",
	} {
		must(os.WriteFile(in(name), []byte(strings.Repeat(name, i)), 0o600))
		must(os.Chmod(in(name), fs.FileMode(0o600+i)))
		must(os.Chtimes(in(name), time.Now(), time.Unix(1_000_000_000+int64(i), 0)))
	}
	must(os.WriteFile(in("sticky"), nil, 0o600))
	must(os.Chmod(in("sticky"), 0o700|fs.ModeSticky))
	deep := in("d")
	for i := range 60 {
		deep += fmt.Sprintf("/level-%02d-\xf0", i)
	}
	must(os.MkdirAll(deep, 0o755))
	must(os.WriteFile(deep+"/leaf", bytes.Repeat([]byte("leaf"), 100_000), 0o444))
	must(os.Mkdir(in("closed"), 0o755))
	must(os.WriteFile(in("closed/inside"), []byte("x"), 0o400))
	must(os.Link(in("plain"), in("hard")))
	for name, target := range map[string]string{
		"up": "../../..", "root": "/", "dangling": "no/such\xfffile", "loop": "loop", "proc": "/proc/self/fd/0", "dirlink": "d", "long": strings.Repeat("x/", 1000) + "y",
	} {
		must(os.Symlink(target, in(name)))
	}
	must(syscall.Mkfifo(in("pipe"), 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(err)
	defer unix.Close(fd)
	must(os.Symlink(root, "/tmp/.sgt-tree-"+filepath.Base(root))) // a socket's path is short
	defer os.Remove("/tmp/.sgt-tree-" + filepath.Base(root))
	must(unix.Bind(fd, &unix.SockaddrUnix{Name: "/tmp/.sgt-tree-" + filepath.Base(root) + "/socket"}))
	skipped = 2
	if os.Geteuid() == 0 {
		must(unix.Mknod(in("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		skipped++
	}
	must(os.Chtimes(in("d"), time.Now(), time.Unix(999_999_999, 0)))
	must(os.Chmod(in("closed"), 0o500))
	t.Cleanup(func() { os.Chmod(in("closed"), 0o700) })
	return skipped
}

// describe is what a round trip has to keep.
func describe(t testing.TB, root string, hard bool) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		line := fmt.Sprintf("%q %v", rel, info.Mode())
		switch {
		case rel == ".":
			return nil
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x %d", info.ModTime().Unix(), content[:min(len(content), 40)], len(content))
			if hard {
				line += fmt.Sprintf(" %d", info.Sys().(*syscall.Stat_t).Nlink)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", target)
		case info.IsDir():
			line += fmt.Sprintf(" %d", info.ModTime().Unix())
		default:
			return nil // skipped
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func unpackInto(t testing.TB, dir string, f tree.Format, r io.Reader, limits tree.Limits) (tree.Totals, error) {
	t.Helper()
	root, err := tree.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return tree.Unpack(t.Context(), root, f, r, limits, func() (*os.File, error) { return os.CreateTemp(t.TempDir(), "") })
}

func TestRoundTrip(t *testing.T) {
	from := t.TempDir()
	skipped := oddTree(t, from)
	for _, f := range []tree.Format{tree.Tar, tree.TarGz, tree.Zip} {
		t.Run(string(f), func(t *testing.T) {
			var archive bytes.Buffer
			packed, err := tree.Pack(t.Context(), from, f, &archive)
			if err != nil || packed.Skipped != skipped || packed.First == "" {
				t.Fatalf("%+v %v", packed, err)
			}
			to := t.TempDir()
			t.Cleanup(func() { os.Chmod(to+"/closed", 0o700) })
			for range 2 { // the second time everything is there already
				done, err := unpackInto(t, to, f, bytes.NewReader(archive.Bytes()), tree.Limits{})
				if err != nil || done.Files != packed.Files || done.Dirs != packed.Dirs || done.Links != packed.Links || done.Skipped != 0 {
					t.Fatalf("%+v, of %+v: %v", done, packed, err)
				}
				want, got := describe(t, from, f != tree.Zip), describe(t, to, f != tree.Zip)
				for i := range min(len(want), len(got)) {
					if want[i] != got[i] {
						t.Errorf("%s\nbecame %s", want[i], got[i])
					}
				}
				if len(want) != len(got) {
					t.Errorf("%d entries became %d", len(want), len(got))
				}
			}
		})
	}
}

// Other programs read what Pack writes.
func TestPackForOthers(t *testing.T) {
	from := t.TempDir()
	oddTree(t, from)
	for f, command := range map[tree.Format][]string{
		tree.Tar: {"tar", "-xpf"}, tree.TarGz: {"tar", "-xpzf"},
	} {
		t.Run(string(f), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "archive")
			out, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tree.Pack(t.Context(), from, f, out); err != nil {
				t.Fatal(err)
			}
			out.Close()
			to := t.TempDir()
			t.Cleanup(func() { os.Chmod(to+"/closed", 0o700) })
			cmd := exec.CommandContext(t.Context(), command[0], append(slices.Clone(command[1:]), file, "-C", to)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if want, got := describe(t, from, true), describe(t, to, true); !slices.Equal(want, got) {
				t.Errorf("%d entries became %d, or others", len(want), len(got))
			}
		})
	}
}

func TestPackOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one")
	if err := os.WriteFile(path, []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if done, err := tree.Pack(t.Context(), path, tree.Tar, &archive); err != nil || done != (tree.Totals{Files: 1, Bytes: 7}) {
		t.Fatalf("%+v %v", done, err)
	}
	h, err := tar.NewReader(&archive).Next()
	if err != nil || h.Name != "one" || h.Mode != 0o640 {
		t.Errorf("%+v %v", h, err)
	}
	for _, path := range []string{"/dev/null", "/proc", "/sys", "/dev"} {
		if done, err := tree.Pack(t.Context(), path, tree.Tar, io.Discard); err == nil {
			t.Errorf("%s was packed: %+v", path, done)
		}
	}
	if _, err := tree.Pack(t.Context(), "/no/such", tree.Tar, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A file that shrinks while it is packed is filled up, so that what follows it
// stays readable; growing changes nothing.
func TestPackChangingFile(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a", "b"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	w := writerFunc(func(b []byte) (int, error) {
		if archive.Len() == 0 { // at the header of the first
			os.Truncate(filepath.Join(dir, "a"), 10)
			os.Truncate(filepath.Join(dir, "b"), 10)
		}
		return archive.Write(b)
	})
	done, err := tree.Pack(t.Context(), dir, tree.Tar, w)
	if err != nil || done.Files != 2 || done.Skipped != 1 {
		t.Errorf("%+v %v", done, err)
	}
	r := tar.NewReader(&archive)
	for range names {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
