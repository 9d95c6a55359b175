package tree_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// makeDeep makes a tree that is too deep for any path to name its end.
func makeDeep(t testing.TB, root string, levels int) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(fd, "dd", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "dd", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
}

// walk visits a tree and returns how many entries it has, how many were skipped
// and how many descriptors were open at most.
func walk(t testing.TB, root string, depth int) (visited, skipped, descriptors int) {
	t.Helper()
	dir, err := tree.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	err = tree.Walk(t.Context(), dir, depth, func(*tree.Node) (bool, error) {
		visited++
		if visited%100 == 0 {
			open, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return false, err
			}
			descriptors = max(descriptors, len(open))
		}
		return true, nil
	}, func(string, error) { skipped++ })
	if err != nil {
		t.Fatal(err)
	}
	return visited, skipped, descriptors
}

func TestDeepTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	makeDeep(t, root, 10_000)
	visited, skipped, descriptors := walk(t, root, 0)
	if visited != 4096/3 || skipped != 1 || descriptors > 100 {
		t.Errorf("visited %d, skipped %d, with %d descriptors", visited, skipped, descriptors)
	}
	if done, err := tree.Pack(t.Context(), root, tree.TarGz, io.Discard); err != nil || done.Dirs != int64(visited) || done.Skipped != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if err := tree.Remove(t.Context(), root); err != nil {
		t.Errorf("remove: %.300v", err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// The way back up leads through directories that were read before, and goes on
// where reading them had stopped.
func TestWalkGoesOn(t *testing.T) {
	root := t.TempDir()
	path := root
	want := 0
	for level := range 200 {
		for i := range 5 {
			if err := os.WriteFile(fmt.Sprintf("%s/file-%d", path, i), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			want++
		}
		path += fmt.Sprintf("/d%d", level)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		want++
	}
	if visited, skipped, _ := walk(t, root, 0); visited != want || skipped != 0 {
		t.Errorf("visited %d of %d, skipped %d", visited, want, skipped)
	}
	if visited, _, _ := walk(t, root, 3); visited != 18 {
		t.Errorf("visited %d in three levels", visited)
	}
	if err := tree.Remove(t.Context(), root); err != nil {
		t.Error(err)
	}
}

func TestWideDirectory(t *testing.T) {
	root := t.TempDir()
	const count = 5_000
	for i := range count {
		if err := os.Symlink("x", fmt.Sprintf("%s/%d", root, i)); err != nil {
			t.Fatal(err)
		}
	}
	if visited, _, _ := walk(t, root, 0); visited != count {
		t.Errorf("visited %d", visited)
	}
	if err := tree.Remove(t.Context(), root); err != nil {
		t.Error(err)
	}
}

// Links are removed, what they lead to stays.
func TestRemoveFollowsNothing(t *testing.T) {
	above := t.TempDir()
	root := filepath.Join(above, "root")
	kept := filepath.Join(above, "kept")
	if err := errors.Join(
		os.MkdirAll(root+"/sub", 0o755), os.Mkdir(kept, 0o755), os.WriteFile(kept+"/file", nil, 0o600),
		os.Symlink(kept, root+"/link"), os.Symlink("../../kept", root+"/sub/link"), os.Symlink("/", root+"/root"),
		os.Symlink("none", root+"/dangling"), unix.Mkfifo(root+"/pipe", 0o600), os.Symlink(root, above+"/alias"),
	); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(t.Context(), above+"/alias"); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link was removed as a directory: %v", err)
	}
	if err := tree.Remove(t.Context(), root); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept + "/file"); err != nil {
		t.Error(err)
	}
	if err := tree.Remove(t.Context(), root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("once more: %v", err)
	}
}

func TestMountsStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	root := t.TempDir()
	mounted := filepath.Join(root, "a/mounted")
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sgt-tree", mounted, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("this machine lets nobody mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(mounted, unix.MNT_DETACH) })
	if err := os.WriteFile(mounted+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root + "/a", mounted} {
		if err := tree.Remove(t.Context(), path); !errors.Is(err, tree.ErrMount) || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("%v", err)
		}
	}
	if _, err := os.Stat(mounted + "/file"); err != nil {
		t.Error(err)
	}
	if visited, _, _ := walk(t, root, 0); visited != 3 {
		t.Errorf("visited %d: what is mounted are files like others", visited)
	}
	if err := unix.Mount("proc", mounted, "proc", 0, ""); err != nil {
		t.Skipf("this machine lets nobody mount proc: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(mounted, unix.MNT_DETACH) })
	if visited, _, _ := walk(t, root, 0); visited != 2 {
		t.Errorf("visited %d: the kernel is no files", visited)
	}
}

func TestWalkEnds(t *testing.T) {
	root := t.TempDir()
	for i := range 100 {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", root, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir, err := tree.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	visited := 0
	err = tree.Walk(ctx, dir, 0, func(*tree.Node) (bool, error) {
		if visited++; visited == 10 {
			cancel()
		}
		return true, nil
	}, func(string, error) {})
	if !errors.Is(err, context.Canceled) || visited > 11 {
		t.Errorf("visited %d, %v", visited, err)
	}
	if err := tree.Remove(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("remove: %v", err)
	}
}

// Somebody changes the tree at the same time: whatever that does to the walk,
// it comes to an end and stays inside.
func TestWalkWhileItChanges(t *testing.T) {
	above := t.TempDir()
	root := filepath.Join(above, "root")
	outside := filepath.Join(above, "outside")
	if err := errors.Join(os.Mkdir(root, 0o755), os.MkdirAll(outside+"/deep/er", 0o755), os.WriteFile(outside+"/deep/er/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			// A directory, in its place a link that leads out, and again.
			os.MkdirAll(root+"/a/b/c", 0o755)
			os.Rename(root+"/a/b", root+"/moved")
			os.Symlink(outside+"/deep", root+"/a/b")
			os.Remove(root + "/a/b")
			os.Remove(root + "/moved/c")
			os.Remove(root + "/moved")
		}
	}()
	for range 300 {
		dir, err := tree.OpenDir(root)
		if err != nil {
			t.Fatal(err)
		}
		_ = tree.Walk(t.Context(), dir, 0, func(n *tree.Node) (bool, error) {
			if n.Name == "er" || n.Name == "file" {
				t.Errorf("the walk came to %s", n.Path)
			}
			return true, nil
		}, func(string, error) {}) // it may have been led astray; it must end
		_ = tree.Remove(t.Context(), root+"/a") // and this may find something new in it
		if _, err := os.Stat(outside + "/deep/er/file"); err != nil {
			t.Fatal("what is outside was removed")
		}
	}
	close(stop)
	<-stopped
}
