package netd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Each namespace is kept by a bind mount on a file, so that it outlives netd
// and everybody else.
const (
	sandboxSuffix = ".s"
	routerSuffix  = ".r"
)

const nsfsMagic = 0x6e736673

// onThread runs f on a thread that is thrown away afterwards, so that f may
// move it into other namespaces and need not find the way back.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// within runs f on a thread in the network namespace ns. Sockets that f opens
// belong to it for good.
func within(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// newNamespace makes a network namespace that lives as long as it is open.
func newNamespace() (*os.File, error) {
	var ns *os.File
	err := onThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		if err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return nil
	})
	return ns, err
}

// makeNamespace makes a network namespace and keeps it at path.
func makeNamespace(path string) (*os.File, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		f.Close()
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), path, "", unix.MS_BIND, "")
	}
	if err != nil {
		ns.Close()
		return nil, errors.Join(fmt.Errorf("keep network namespace: %w", err), dropNamespace(path))
	}
	return ns, nil
}

// openNamespace opens the namespace that is kept at path; os.ErrNotExist when
// there is none.
func openNamespace(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if !isNamespace(f) {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), os.ErrNotExist)
	}
	return f, nil
}

// isNamespace reports whether f is a network namespace.
func isNamespace(f *os.File) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type != nsfsMagic {
		return false
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	return err == nil && kind == unix.CLONE_NEWNET
}

// dropNamespace lets go of the namespace at path, if there is one.
func dropNamespace(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("let go of network namespace: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inode identifies a namespace.
func inode(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}
