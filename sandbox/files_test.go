package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// names lists a directory of a sandbox, with what is in its directories.
func names(t *testing.T, a *sandbox.Actor, ref, path string) []string {
	t.Helper()
	var found []string
	_, err := a.ListFiles(t.Context(), ref, path, guest.ListOptions{Recursive: true}, func(f guest.FileInfo) error {
		found = append(found, f.Path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func TestFileOperations(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a, ctx := w.engine.As(alice), t.Context()

	done, err := a.WriteFiles(ctx, s.ID, []sandbox.File{
		{Path: "src/index.ts", Content: []byte("one")}, {Path: "src/lib/run", Content: []byte("two!"), Mode: 0o755}, {Path: "top"},
	}, sandbox.WriteFilesOptions{})
	if err != nil || done.Files != 3 || done.Bytes != 7 || len(done.Directories) != 2 || !strings.HasSuffix(done.Directories[1], "/src/lib") {
		t.Fatalf("%+v %v", done, err)
	}
	if done, err = a.WriteFiles(ctx, s.ID, []sandbox.File{{Path: "a"}, {Path: "none/b"}, {Path: "c"}}, sandbox.WriteFilesOptions{Strict: true}); done.Files != 1 {
		t.Errorf("%+v", done)
	}
	wantCode(t, err, fault.NotFound)
	if got := names(t, a, s.ID, ""); !slices.Equal(got, []string{"a", "src", "src/index.ts", "src/lib", "src/lib/run", "top"}) {
		t.Errorf("%q", got)
	}
	if info, err := a.Stat(ctx, s.ID, "src/lib/run", guest.StatOptions{}); err != nil || info.Mode != 0o755 || info.Size != 4 || info.Type != guest.TypeFile {
		t.Errorf("%+v %v", info, err)
	}
	f, err := a.OpenFile(ctx, s.ID, "src/lib/run", guest.ReadOptions{Offset: 1, Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); string(b) != "wo" || err != nil || f.Info().Size != 4 {
		t.Errorf("%q %v", b, err)
	}
	f.Close()

	var archive bytes.Buffer
	packed, err := a.Download(ctx, s.ID, "src", guest.TarGz, "", &archive)
	if err != nil || packed.Files != 2 || packed.Dirs != 1 || packed.Bytes != 7 {
		t.Errorf("%+v %v", packed, err)
	}
	if done, err := a.Upload(ctx, s.ID, "copy", guest.UploadOptions{}, &archive); err != nil || done != packed {
		t.Errorf("%+v %v", done, err)
	}
	if err := a.Rename(ctx, s.ID, "copy/lib", "copy/moved", ""); err != nil {
		t.Error(err)
	}
	if err := a.Chmod(ctx, s.ID, "copy/moved/run", 0o4711, ""); err != nil {
		t.Error(err)
	}
	if info, err := a.Stat(ctx, s.ID, "copy/moved/run", guest.StatOptions{}); err != nil || info.Mode != 0o4711 {
		t.Errorf("%+v %v", info, err)
	}
	_, err = a.RemoveDir(ctx, s.ID, "copy", guest.RemoveDirOptions{})
	wantCode(t, err, fault.State)
	for _, want := range []bool{true, false} {
		if found, err := a.RemoveDir(ctx, s.ID, "copy", guest.RemoveDirOptions{Recursive: true}); found != want || err != nil {
			t.Errorf("%v %v", found, err)
		}
		if found, err := a.RemoveFile(ctx, s.ID, "top", ""); found != want || err != nil {
			t.Errorf("%v %v", found, err)
		}
	}
	made, err := a.Mkdir(ctx, s.ID, "x/y", guest.MkdirOptions{Parents: true})
	if err != nil || len(made) != 2 {
		t.Errorf("%q %v", made, err)
	}
	_, err = a.Mkdir(ctx, s.ID, "x", guest.MkdirOptions{})
	wantCode(t, err, fault.Exists)
	broken := errors.New("the client has gone")
	if _, err := a.PutFile(ctx, s.ID, "a", guest.WriteOptions{}, io.MultiReader(strings.NewReader("new"), failing{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
	if info, err := a.Stat(ctx, s.ID, "a", guest.StatOptions{}); err != nil || info.Size != 0 {
		t.Errorf("half a file appeared: %+v %v", info, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What a request alone shows to be wrong is refused before the sandbox is
// looked at, and to a stranger there is no sandbox.
func TestFileOperationsRefuse(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	ctx := t.Context()
	long := strings.Repeat("x", 1<<20)
	for what, op := range map[string]func(a *sandbox.Actor, path string) error{
		"stat": func(a *sandbox.Actor, p string) error {
			_, err := a.Stat(ctx, s.ID, p, guest.StatOptions{})
			return err
		},
		"open": func(a *sandbox.Actor, p string) error {
			_, err := a.OpenFile(ctx, s.ID, p, guest.ReadOptions{})
			return err
		},
		"put": func(a *sandbox.Actor, p string) error {
			_, err := a.PutFile(ctx, s.ID, p, guest.WriteOptions{}, strings.NewReader("x"))
			return err
		},
		"write": func(a *sandbox.Actor, p string) error { return a.WriteFile(ctx, s.ID, sandbox.File{Path: p}) },
		"list": func(a *sandbox.Actor, p string) error {
			_, err := a.ListFiles(ctx, s.ID, p, guest.ListOptions{}, func(guest.FileInfo) error { return nil })
			return err
		},
		"mkdir": func(a *sandbox.Actor, p string) error {
			_, err := a.Mkdir(ctx, s.ID, p, guest.MkdirOptions{})
			return err
		},
		"rm": func(a *sandbox.Actor, p string) error { _, err := a.RemoveFile(ctx, s.ID, p, ""); return err },
		"rmdir": func(a *sandbox.Actor, p string) error {
			_, err := a.RemoveDir(ctx, s.ID, p, guest.RemoveDirOptions{})
			return err
		},
		"mv":    func(a *sandbox.Actor, p string) error { return a.Rename(ctx, s.ID, "a", p, "") },
		"chmod": func(a *sandbox.Actor, p string) error { return a.Chmod(ctx, s.ID, p, 0o600, "") },
		"download": func(a *sandbox.Actor, p string) error {
			_, err := a.Download(ctx, s.ID, p, guest.Tar, "", io.Discard)
			return err
		},
		"upload": func(a *sandbox.Actor, p string) error {
			_, err := a.Upload(ctx, s.ID, p, guest.UploadOptions{}, strings.NewReader("x"))
			return err
		},
	} {
		for _, path := range []string{long, "a\x00b"} {
			err := op(w.engine.As(alice), path)
			if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Errorf("%s: %.400v", what, err)
			}
		}
		if err := op(w.engine.As(bob), "a"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), s.ID) {
			t.Errorf("%s by a stranger: %v", what, err)
		}
	}
}

// What is done with files keeps a sandbox from being idle; that one is open does
// not.
func TestFileOperationsAreActivity(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	a, ctx := w.engine.As(alice), t.Context()
	if err := a.WriteFile(ctx, s.ID, sandbox.File{Path: "f", Content: make([]byte, 100)}); err != nil {
		t.Fatal(err)
	}
	f, err := a.OpenFile(ctx, s.ID, "f", guest.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, op := range []func() error{
		func() error { _, err := a.Stat(ctx, s.ID, "", guest.StatOptions{}); return err },
		func() error { _, err := f.Read(make([]byte, 10)); return err },
	} {
		w.reapAfter(50 * time.Second)
		if err := op(); err != nil {
			t.Fatal(err)
		}
	}
	w.reapAfter(50 * time.Second)
	w.status(s.ID, sandbox.Idle)
	w.reapAfter(50 * time.Second)
	w.status(s.ID, sandbox.Terminated)
}
