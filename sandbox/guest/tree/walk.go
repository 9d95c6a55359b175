// Package tree reads, removes, packs and unpacks trees of files that somebody
// else may change at the same time, and that may be as deep, as wide and as
// oddly named as a filesystem allows.
//
// It follows no symbolic link below the root it is given, opens nothing but
// directories and regular files, and holds few descriptors and little memory
// whatever it meets. What it writes stays below its root (os.Root).
//
// The guest uses it inside of sandboxes, and the host for trees of its own that
// it copies into a sandbox, or out of one.
package tree

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Node is one entry of a tree.
type Node struct {
	Path string // relative to the root
	Name string
	Stat unix.Stat_t
	dir  int
}

// Dir reports whether it is a directory.
func (n *Node) Dir() bool { return n.Stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// Regular reports whether it is a regular file.
func (n *Node) Regular() bool { return n.Stat.Mode&unix.S_IFMT == unix.S_IFREG }

// Link reports whether it is a symbolic link.
func (n *Node) Link() bool { return n.Stat.Mode&unix.S_IFMT == unix.S_IFLNK }

// open opens a regular file, or nothing.
func (n *Node) open() (rawFile, error) {
	fd, err := openat(n.dir, n.Name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = syscall.EINVAL
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	n.Stat = st
	return rawFile(fd), nil
}

// rawFile is the descriptor of a regular file, without what package os adds.
type rawFile int

func (f rawFile) Read(b []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(f), b) })
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

func (f rawFile) Close() error { return unix.Close(int(f)) }

// Target reads a symbolic link.
func (n *Node) Target() (string, error) {
	buf := make([]byte, wire.MaxPath)
	size, err := retry(func() (int, error) { return unix.Readlinkat(n.dir, n.Name, buf) })
	if err == nil && size == len(buf) {
		err = syscall.ENAMETOOLONG
	}
	if err != nil {
		return "", err
	}
	return string(buf[:size]), nil
}

// errKernel means that a directory is not entered because what is in it is no
// files: the kernel shows itself there.
var errKernel = errors.New("shows the kernel")

// ErrTooDeep means that no path can name what is there.
var ErrTooDeep = errors.New("the path is too long")

// Walk visits what is below a directory, parents first, in the order of the
// filesystem, and no deeper than depth levels if that is not 0. A directory is
// entered when visit returns true. What vanishes meanwhile is left out;
// skipped is told what cannot be read, or lies too deep, and the walk goes on.
// The mounts of /proc, /sys and /dev are not entered from outside.
//
// Walk closes dir.
func Walk(ctx context.Context, dir *os.File, depth int, visit func(*Node) (bool, error), skipped func(path string, err error)) error {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	dir.Close()
	if err != nil {
		return err
	}
	d, err := begin(fd)
	if err != nil {
		return err
	}
	defer d.close()
	for ctx.Err() == nil {
		name, _, err := d.next()
		if err != nil {
			skipped(string(d.path), err)
		}
		if name == "" {
			if len(d.levels) == 1 {
				return nil
			}
			if _, err := d.up(); err != nil {
				return err
			}
			continue
		}
		n := Node{Name: name, dir: d.top().fd}
		if len(d.path)+1+len(name) >= wire.MaxPath {
			skipped(d.at(name), ErrTooDeep)
			continue
		}
		n.Path = d.at(name)
		if err := lstat(n.dir, name, &n.Stat); err != nil {
			if !errors.Is(err, unix.ENOENT) {
				skipped(n.Path, err)
			}
			continue
		}
		enter, err := visit(&n)
		if err != nil {
			return err
		}
		if !enter || !n.Dir() || (depth > 0 && len(d.levels) >= depth) {
			continue
		}
		if err := d.down(name, refuseKernel); err != nil && !errors.Is(err, errKernel) && !errors.Is(err, unix.ENOENT) {
			skipped(n.Path, err)
		}
	}
	return ctx.Err()
}

func lstat(dir int, name string, st *unix.Stat_t) error {
	_, err := retry(func() (struct{}, error) { return struct{}{}, unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW) })
	return err
}

func refuseKernel(fd int, crossed bool) error {
	if crossed && Kernel(fd) {
		return errKernel
	}
	return nil
}

// Kernel reports whether a directory is one in which the kernel shows itself or
// its devices.
func Kernel(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC:
		return true
	}
	// /dev is an ordinary tmpfs to look at.
	var dev, st unix.Stat_t
	return unix.Stat("/dev", &dev) == nil && unix.Fstat(fd, &st) == nil && dev.Dev == st.Dev && dev.Ino == st.Ino
}
