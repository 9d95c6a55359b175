package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// oddNames are names that a filesystem takes.
var oddNames = []string{"plain", "späce and ünicode", "new\nline", "-rf", "\x1b[2J", "not\xffutf8\xfe", `back\slash"quote`, strings.Repeat("l", 255)}

func list(t testing.TB, c *guest.Conn, path string, o guest.ListOptions) ([]guest.FileInfo, guest.Listing) {
	t.Helper()
	var found []guest.FileInfo
	l, err := c.ListFiles(testContext(t), path, o, func(f guest.FileInfo) error {
		found = append(found, f)
		return nil
	})
	if err != nil {
		t.Fatalf("list %q: %v", path, err)
	}
	slices.SortFunc(found, func(a, b guest.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return found, l
}

// Names travel as they are, whatever bytes they have, in every verb.
func TestOddNames(t *testing.T) {
	s := newSandbox(t, nil)
	c, ctx := s.connect(t), testContext(t)
	for i, name := range oddNames {
		path := "dir-" + name[:min(len(name), 200)] + "/" + name
		made, err := c.PutFile(ctx, path, guest.WriteOptions{Parents: true, Mode: 0o640}, strings.NewReader(name))
		if err != nil || len(made) != 1 || filepath.Base(made[0]) != filepath.Base(filepath.Dir(path)) {
			t.Errorf("%q: made %q, %v", name, made, err)
			continue
		}
		if got, _ := readAll(t, c, path); got != name {
			t.Errorf("%q: read %q", name, got)
		}
		if info, err := c.Stat(ctx, path, guest.StatOptions{}); err != nil || info.Path != filepath.Join(s.workspace, path) || info.Mode != 0o640 {
			t.Errorf("%q: %+v %v", name, info, err)
		}
		if found, _ := list(t, c, filepath.Dir(path), guest.ListOptions{}); len(found) != 1 || found[0].Path != name || found[0].Size != int64(len(name)) {
			t.Errorf("%q: listed %+v", name, found)
		}
		if err := c.Chmod(ctx, path, 0o600, ""); err != nil {
			t.Error(err)
		}
		if err := c.Rename(ctx, path, fmt.Sprint("renamed-", i), ""); err != nil {
			t.Error(err)
		}
		if err := c.Rename(ctx, fmt.Sprint("renamed-", i), path, ""); err != nil {
			t.Error(err)
		}
		if found, err := c.RemoveFile(ctx, path, ""); !found || err != nil {
			t.Errorf("%q: %v %v", name, found, err)
		}
		if found, err := c.RemoveDir(ctx, filepath.Dir(path), guest.RemoveDirOptions{}); !found || err != nil {
			t.Errorf("%q: %v %v", name, found, err)
		}
	}
	if left, _ := list(t, c, ".", guest.ListOptions{}); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestListFiles(t *testing.T) {
	s := newSandbox(t, nil)
	c, ctx := s.connect(t), testContext(t)
	for _, dir := range []string{"a/b/c", "z"} {
		if _, err := c.Mkdir(ctx, dir, guest.MkdirOptions{Parents: true}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.Symlink("../a", s.workspace+"/z/link"))
	must(t, os.Symlink("\xff", s.workspace+"/z/raw"))
	must(t, syscall.Mkfifo(s.workspace+"/z/pipe", 0o600))
	for o, want := range map[guest.ListOptions][]string{
		{}:                          {"a", "z"},
		{Recursive: true, Depth: 2}: {"a", "a/b", "z", "z/link", "z/pipe", "z/raw"},
		{Recursive: true}:           {"a", "a/b", "a/b/c", "z", "z/link", "z/pipe", "z/raw"},
	} {
		found, l := list(t, c, ".", o)
		var paths []string
		for _, f := range found {
			paths = append(paths, f.Path)
		}
		if !slices.Equal(paths, want) || l.More || l.Skipped != 0 || l.Dir.Path != s.workspace || l.Dir.Type != guest.TypeDir {
			t.Errorf("%+v: %q %+v", o, paths, l)
		}
	}
	found, _ := list(t, c, "z", guest.ListOptions{})
	if found[0].Target != "../a" || found[0].Type != guest.TypeLink || found[1].Type != guest.TypePipe || found[2].Target != "\xff" {
		t.Errorf("%+v", found)
	}
	if found, l := list(t, c, ".", guest.ListOptions{Recursive: true, Limit: 3}); len(found) != 3 || !l.More {
		t.Errorf("%+v %+v", found, l)
	}
	if _, l := list(t, c, ".", guest.ListOptions{Limit: 2}); l.More {
		t.Error("there was no more")
	}
	for path, code := range map[string]fault.Code{"none": fault.NotFound, "z/pipe": fault.Invalid, "z/link/none": fault.NotFound} {
		if _, err := c.ListFiles(ctx, path, guest.ListOptions{}, nil); !fault.Is(err, code) {
			t.Errorf("%s: %v", path, err)
		}
	}
	stop := errors.New("enough")
	if _, err := c.ListFiles(ctx, ".", guest.ListOptions{}, func(guest.FileInfo) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPutFile(t *testing.T) {
	s := newSandbox(t, nil)
	c, ctx := s.connect(t), testContext(t)
	path := filepath.Join(s.workspace, "f")
	put := func(o guest.WriteOptions, content string) error {
		_, err := c.PutFile(ctx, "f", o, strings.NewReader(content))
		return err
	}
	want := func(content string, mode os.FileMode) {
		t.Helper()
		b, err := os.ReadFile(path)
		info, serr := os.Stat(path)
		if err := errors.Join(err, serr); err != nil || string(b) != content || info.Mode() != mode {
			t.Errorf("%q %v %v, want %q %v", b, info.Mode(), err, content, mode)
		}
	}
	must(t, put(guest.WriteOptions{}, "new"))
	want("new", 0o644)
	must(t, put(guest.WriteOptions{Mode: 0o4751}, "set"))
	want("set", 0o751|os.ModeSetuid)
	must(t, put(guest.WriteOptions{}, "kept"))
	want("kept", 0o751|os.ModeSetuid)
	must(t, c.Chmod(ctx, "f", 0o751, ""))
	must(t, put(guest.WriteOptions{Append: true}, "+more"))
	want("kept+more", 0o751)
	for _, size := range []int64{0, 4, 6} {
		if err := put(guest.WriteOptions{Size: &size}, "12345"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "size") {
			t.Errorf("%d bytes announced: %v", size, err)
		}
	}
	want("kept+more", 0o751)
	must(t, put(guest.WriteOptions{Size: new(int64(5))}, "12345"))
	want("12345", 0o751)
	if _, err := c.PutFile(ctx, "no/dir/f", guest.WriteOptions{}, strings.NewReader("x")); !fault.Is(err, fault.NotFound) {
		t.Errorf("without parents: %v", err)
	}
	// What was made for a file that does not come is removed again.
	if _, err := c.PutFile(ctx, "new/dirs/f", guest.WriteOptions{Parents: true}, errorReader{io.ErrNoProgress}); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	for { // when the guest has noticed
		if _, err := os.Stat(filepath.Join(s.workspace, "new")); errors.Is(err, os.ErrNotExist) {
			break
		}
		must(t, ctx.Err())
	}
	f, err := c.OpenFile(ctx, "f", guest.ReadOptions{Offset: 3, Length: 10})
	must(t, err)
	defer f.Close()
	if b, err := io.ReadAll(f); string(b) != "45" || err != nil || f.Size() != 5 || time.Since(f.Modified()) > time.Hour {
		t.Errorf("%q %v", b, err)
	}
	if f, err := c.OpenFile(ctx, "f", guest.ReadOptions{Offset: 100}); err != nil {
		t.Error(err)
	} else if b, err := io.ReadAll(f); len(b) != 0 || err != nil {
		t.Errorf("behind the end: %q %v", b, err)
	}
}

// An archive ends where it leads out, and tells what came before.
func TestUploadDownload(t *testing.T) {
	s := newSandbox(t, nil)
	c, ctx := s.connect(t), testContext(t)
	for i, name := range oddNames {
		_, err := c.PutFile(ctx, "from/sub/"+name, guest.WriteOptions{Parents: true, Mode: 0o600 + uint32(i)}, strings.NewReader(strings.Repeat(name, 1000*i)))
		must(t, err)
	}
	must(t, os.Symlink("../..", s.workspace+"/from/out"))
	for _, f := range []guest.Format{guest.Tar, guest.TarGz, guest.Zip} {
		var archive bytes.Buffer
		packed, err := c.Download(ctx, "from", f, "", &archive)
		if err != nil || packed.Files != int64(len(oddNames)) || packed.Dirs != 1 || packed.Links != 1 {
			t.Errorf("%s: %+v %v", f, packed, err)
		}
		to := "to-" + string(f)
		if done, err := c.Upload(ctx, to, guest.UploadOptions{}, &archive); err != nil || done != packed {
			t.Errorf("%s: %+v %v", f, done, err)
		}
		want, _ := list(t, c, "from", guest.ListOptions{Recursive: true})
		got, _ := list(t, c, to, guest.ListOptions{Recursive: true})
		for i := range want {
			if len(got) != len(want) || got[i].Path != want[i].Path || got[i].Mode != want[i].Mode || got[i].Size != want[i].Size || got[i].Modified.Unix() != want[i].Modified.Unix() && got[i].Type != guest.TypeLink {
				t.Errorf("%s: %+v became %+v", f, want[i], got[min(i, len(got)-1)])
			}
		}
	}
	if _, err := c.Upload(ctx, "x", guest.UploadOptions{}, strings.NewReader("no archive")); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	var archive bytes.Buffer
	_, err := c.Download(ctx, "from", guest.Tar, "", &archive)
	must(t, err)
	done, err := c.Upload(ctx, "small", guest.UploadOptions{MaxBytes: 10_000}, &archive)
	if !fault.Is(err, fault.Exhausted) || done.Bytes > 10_000 {
		t.Errorf("%+v %v", done, err)
	}
	if n, err := c.Download(ctx, "none", guest.Tar, "", io.Discard); !fault.Is(err, fault.NotFound) {
		t.Errorf("%+v %v", n, err)
	}
	full := errors.New("full")
	if _, err := c.Download(ctx, "from", guest.Tar, "", writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestCopyTrees(t *testing.T) {
	s := newSandbox(t, nil)
	c, ctx := s.connect(t), testContext(t)
	from, to := t.TempDir(), t.TempDir()
	for i, name := range oddNames {
		must(t, os.WriteFile(from+"/"+name, []byte(name), 0o600))
		must(t, os.Chmod(from+"/"+name, os.FileMode(0o600+i)))
	}
	must(t, os.Symlink("/etc", from+"/link"))
	in, err := c.CopyIn(ctx, from, "tree", guest.UploadOptions{})
	if err != nil || in.Files != int64(len(oddNames)) || in.Links != 1 {
		t.Fatalf("%+v %v", in, err)
	}
	root, err := tree.OpenDir(to)
	must(t, err)
	defer root.Close()
	if out, err := c.CopyOut(ctx, "tree", "", root, tree.Limits{}); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	for i, name := range oddNames {
		info, err := os.Lstat(to + "/" + name)
		if err != nil || info.Mode() != os.FileMode(0o600+i) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := c.CopyOut(ctx, "tree", "", root, tree.Limits{Bytes: 10}); !fault.Is(err, fault.Exhausted) {
		t.Error(err)
	}
	if _, err := c.CopyOut(ctx, "none", "", root, tree.Limits{}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err := c.CopyIn(ctx, from+"/none", "tree", guest.UploadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// What a host has given up ends in the guest: nothing of it is left there, and
// all who wait for room get it.
func TestFilesCancelled(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	must(t, os.WriteFile(s.workspace+"/big", make([]byte, 8<<20), 0o600))
	for range 40 { // more than may run at once
		ctx, cancel := context.WithCancel(testContext(t))
		r, w := io.Pipe()
		up := make(chan error, 1)
		go func() {
			_, err := c.Upload(ctx, "up", guest.UploadOptions{Format: guest.TarGz}, r)
			up <- err
		}()
		w.Write([]byte("\x1f\x8b"))
		if _, err := c.Download(ctx, ".", guest.TarGz, "", writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })); err != nil && !fault.Is(err, fault.Cancelled) {
			t.Errorf("%v", err)
		}
		cancel()
		w.Close()
		if err := <-up; err == nil {
			t.Error("half an archive was unpacked well")
		}
	}
	if _, err := c.Download(testContext(t), ".", guest.TarGz, "", io.Discard); err != nil {
		t.Error(err)
	}
}
