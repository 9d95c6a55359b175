package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// fillUp creates sandboxes until there is no room, and checks what is said
// then. It returns those that were acknowledged.
func fillUp(t *testing.T, s *Store) []string {
	t.Helper()
	var done []string
	for i := range 10_000 {
		sb := newSandbox(fmt.Sprint("sbx_", i))
		sb.Description = strings.Repeat("x", 10_000)
		err := s.CreateSandbox(t.Context(), sb, sandbox.Event{Type: sandbox.EventCreate})
		if err == nil {
			done = append(done, sb.ID)
			continue
		}
		e := wantCode(t, err, fault.Exhausted)
		if want := "the disk that holds the state is full: free some space in " + s.folder(); e.Error() != want {
			t.Errorf("got %q, want %q", e.Error(), want)
		}
		return done
	}
	t.Fatal("the disk is never full")
	return nil
}

// checkThere fails the test unless the sandboxes, and no others, are there.
func checkThere(t *testing.T, s *Store, ids []string) {
	t.Helper()
	_, total, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{})
	if must(t, err); total != len(ids) {
		t.Errorf("%d sandboxes, want %d", total, len(ids))
	}
	for _, id := range ids {
		if _, err := s.Sandbox(t.Context(), id); err != nil || len(checkEvents(t, s, id)) != 1 {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestDatabaseFull(t *testing.T) {
	s := openStore(t)
	_, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count=100")
	must(t, err)
	done := fillUp(t, s)
	checkThere(t, s, done)
	_, err = s.write.ExecContext(t.Context(), "PRAGMA max_page_count=1000000")
	must(t, err)
	create(t, s, newSandbox("sbx_later"))
	checkThere(t, s, append(done, "sbx_later"))
}

// mountSmall mounts a file system of 2 MiB.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	must(t, os.Mkdir(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("needs root to mount a small file system: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}

// TestDiskFull fills a real file system, frees some room, and goes on.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(mountSmall(t), "state.db")
	ballast := filepath.Join(filepath.Dir(path), "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 512<<10), 0o600))
	s := openAt(t, path)
	done := fillUp(t, s)
	checkThere(t, s, done)
	must(t, os.Remove(ballast))
	create(t, s, newSandbox("sbx_later"))
	must(t, s.Close())
	checkThere(t, openAt(t, path), append(done, "sbx_later"))
}

// TestOpenOnFullDisk starts where there is no room at all.
func TestOpenOnFullDisk(t *testing.T) {
	dir := mountSmall(t)
	err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 4<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	_, err = Open(t.Context(), Config{Path: filepath.Join(dir, "state.db")})
	e := wantCode(t, err, fault.Exhausted)
	if want := "the disk that holds the state is full: free some space in " + dir; e.Error() != want {
		t.Errorf("got %q, want %q", e.Error(), want)
	}
}
