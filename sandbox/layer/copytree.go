package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// CopyTree copies a directory in the overlay form to one that does not exist
// yet: modes, owners, times, extended attributes, hard links, deletions, holes
// and all, and makes the copy durable. Blocks are shared where the filesystem
// can. After an error nothing is left of the copy.
func CopyTree(ctx context.Context, from, to string) (Totals, error) {
	totals, err := CopyTreeNoSync(ctx, from, to)
	if err != nil {
		return Totals{}, err
	}
	if err := Sync(to); err != nil {
		return Totals{}, errors.Join(err, os.RemoveAll(to))
	}
	return totals, nil
}

// CopyTreeNoSync is CopyTree without the waiting for the disk, for a copy that
// is taken while the world is held still. Sync completes it.
func CopyTreeNoSync(ctx context.Context, from, to string) (Totals, error) {
	source, err := openDirectory(from)
	if err != nil {
		return Totals{}, failure(err, "read the layer")
	}
	defer source.Close()
	if err := os.Mkdir(to, 0o700); err != nil {
		return Totals{}, failure(err, "copy the layer")
	}
	c := &copier{ctx: ctx, links: make(map[inode]string), clone: true}
	err = c.tree(source, to)
	if err != nil {
		return Totals{}, failure(errors.Join(err, os.RemoveAll(to)), "copy the layer")
	}
	return c.totals, nil
}

type copier struct {
	ctx    context.Context
	top    *os.File         // of the copy
	links  map[inode]string // path in the copy of every file that has several
	clone  bool             // the filesystem may share blocks
	totals Totals
}

func (c *copier) tree(source *os.File, to string) error {
	top, err := openDirectory(to)
	if err != nil {
		return err
	}
	defer top.Close()
	c.top = top
	var st unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &st); err != nil {
		return err
	}
	return c.dir(source, top, ".", &st, 0)
}

// dir copies what is in one open directory to another, and then what the
// directory itself is.
func (c *copier) dir(from, to *os.File, p string, st *unix.Stat_t, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return fault.New(fault.Invalid, "directories are nested more than %d deep", maxDepth)
	}
	names, err := from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		child, err := statIn(from, name)
		if err != nil {
			return err
		}
		if err := c.child(from, to, name, path.Join(p, name), &child, depth); err != nil {
			return err
		}
	}
	return c.dress(from, to, st)
}

func (c *copier) child(from, to *os.File, name, p string, st *unix.Stat_t, depth int) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.childDir(from, to, name, p, st, depth)
	}
	c.totals.Files++
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first := c.links[key]; first != "" {
			return unix.Linkat(int(c.top.Fd()), first, int(to.Fd()), name, 0)
		}
		c.links[key] = p
	}
	fd := int(to.Fd())
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(from, to, name, st)
	case unix.S_IFLNK:
		target, err := readlinkIn(from, name)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, fd, name); err != nil {
			return err
		}
	default: // a FIFO, a socket, a device or the mark of a deletion
		if err := unix.Mknodat(fd, name, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	if err := unix.Fchownat(fd, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		// Not a link, and nobody else writes here.
		if err := unix.Fchmodat(fd, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) childDir(from, to *os.File, name, p string, st *unix.Stat_t, depth int) error {
	source, err := openIn(from, name, st)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(int(to.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(fd), name)
	defer target.Close()
	return c.dir(source, target, p, st, depth+1)
}

func (c *copier) file(from, to *os.File, name string, st *unix.Stat_t) error {
	source, err := openIn(from, name, st)
	if err != nil {
		return err
	}
	defer source.Close()
	fd, err := unix.Openat(int(to.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(fd), name)
	defer target.Close()
	if st.Size > 0 {
		if err := c.content(source, target, st); err != nil {
			return fmt.Errorf("copy %.200q: %w", name, err)
		}
	}
	c.totals.Bytes += st.Size
	if err := c.dress(source, target, st); err != nil {
		return err
	}
	return target.Close()
}

// content copies the data of a file, by reference where that is possible.
func (c *copier) content(from, to *os.File, st *unix.Stat_t) error {
	in, out := int(from.Fd()), int(to.Fd())
	if c.clone {
		err := unix.IoctlFileClone(out, in)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		}
		c.clone = false
	}
	if st.Blocks*512 >= st.Size {
		return c.stretch(in, out, 0, st.Size)
	}
	for at := int64(0); at < st.Size; {
		data, hole, err := nextData(from, at, st.Size)
		if err != nil {
			return err
		}
		if err := c.stretch(in, out, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return to.Truncate(st.Size)
}

// stretch copies the bytes from one offset to another within the kernel.
func (c *copier) stretch(in, out int, from, to int64) error {
	read, write := from, from
	for read < to {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := unix.CopyFileRange(in, &read, out, &write, int(min(to-read, 64<<20)), 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return c.byHand(in, out, read, to)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the file became shorter")
		}
	}
	return nil
}

// byHand copies where the kernel does not copy between the two filesystems.
func (c *copier) byHand(in, out int, from, to int64) error {
	buf := make([]byte, min(256<<10, to-from))
	for from < to {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Pread(in, buf[:min(int64(len(buf)), to-from)], from)
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the file became shorter")
		}
		for done := 0; done < n; {
			m, err := unix.Pwrite(out, buf[done:n], from+int64(done))
			if err != nil {
				return err
			}
			done += m
		}
		from += int64(n)
	}
	return nil
}

// dress gives a copy the owner, mode, attributes and times of its original, in
// the order in which none undoes another.
func (c *copier) dress(from, to *os.File, st *unix.Stat_t) error {
	fd := int(to.Fd())
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	err := fdXattrs(int(from.Fd()), func(name string, value []byte) error {
		if ofOnePlace(name) {
			return nil
		}
		err := unix.Fsetxattr(fd, name, value, 0)
		if errors.Is(err, unix.ENOTSUP) && !strings.HasPrefix(name, "trusted.overlay.") && !strings.HasPrefix(name, "user.overlay.") {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("copy attributes: %w", err)
	}
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH)
}

// ofOnePlace reports whether an attribute says how overlayfs has found a file
// in one place, which is wrong in another.
func ofOnePlace(name string) bool {
	_, mark, ok := strings.Cut(name, ".overlay.")
	if !ok || !strings.HasPrefix(name, "trusted.") && !strings.HasPrefix(name, "user.") {
		return false
	}
	switch mark {
	case "origin", "impure", "nlink", "upper", "uuid":
		return true
	}
	return false
}
