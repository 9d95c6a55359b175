package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files of a tree are opened one name after the other, relative to the open
// directory they are in and never through a link: what is in the tree may be
// made to lead elsewhere.

type inode struct{ dev, ino uint64 }

// openDirectory opens a directory that the caller names, for reading.
func openDirectory(dir string) (*os.File, error) {
	return os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// openIn opens name in dir, which st describes.
func openIn(dir *os.File, name string, st *unix.Stat_t) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %.200q: %w", name, err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Dev != st.Dev || now.Ino != st.Ino || now.Mode&unix.S_IFMT != st.Mode&unix.S_IFMT {
		unix.Close(fd)
		return nil, fmt.Errorf("open %.200q: it was replaced (%w)", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func statIn(dir *os.File, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, fmt.Errorf("stat %.200q: %w", name, err)
	}
	return st, nil
}

func readlinkIn(dir *os.File, name string) (string, error) {
	var target [maxPath + 1]byte
	n, err := unix.Readlinkat(int(dir.Fd()), name, target[:])
	if err != nil {
		return "", fmt.Errorf("read link %.200q: %w", name, err)
	}
	return string(target[:n]), nil
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// child is one name in an open directory.
type child struct {
	name string
	st   unix.Stat_t
}

// children are all names of an open directory, in the order of the neutral
// form.
func children(dir *os.File) ([]child, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]child, 0, len(names))
	for _, name := range names {
		st, err := statIn(dir, name)
		if err != nil {
			return nil, err
		}
		all = append(all, child{name, st})
	}
	slices.SortFunc(all, func(a, b child) int {
		return strings.Compare(order(a.name, isWhiteout(&a.st)), order(b.name, isWhiteout(&b.st)))
	})
	return all, nil
}

// describe makes the entry of a file. Attributes and content are read from f,
// which is open for directories and regular files.
func describe(p string, dir *os.File, st *unix.Stat_t, f *os.File) (*Entry, error) {
	e := &Entry{
		Path: p, Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type, e.Size = File, st.Size
	case unix.S_IFDIR:
		e.Type = Dir
	case unix.S_IFLNK:
		e.Type, e.Mode = Link, 0o777
		target, err := readlinkIn(dir, path.Base(p))
		if err != nil {
			return nil, err
		}
		e.Target = target
	case unix.S_IFIFO:
		e.Type = Other
	}
	if f != nil {
		if err := e.readAttributes(int(f.Fd())); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// holeReader reads a file and makes up the holes in it without asking the
// disk, so that a sparse file costs what it holds.
type holeReader struct {
	f    *os.File
	size int64
	at   int64
	data int64 // where the next data begins …
	hole int64 // … and ends
}

// contentOf reads a file of a known size.
func contentOf(f *os.File, st *unix.Stat_t) io.Reader {
	if st.Blocks*512 >= st.Size {
		return f
	}
	return &holeReader{f: f, size: st.Size}
}

func (h *holeReader) Read(p []byte) (int, error) {
	if h.at >= h.size {
		return 0, io.EOF
	}
	if h.at >= h.hole {
		var err error
		if h.data, h.hole, err = nextData(h.f, h.at, h.size); err != nil {
			return 0, err
		}
	}
	if h.at < h.data {
		n := int(min(int64(len(p)), h.data-h.at))
		clear(p[:n])
		h.at += int64(n)
		return n, nil
	}
	n, err := h.f.ReadAt(p[:min(int64(len(p)), h.hole-h.at)], h.at)
	h.at += int64(n)
	return n, err
}

// nextData finds the first stretch of data at or after an offset. Both ends
// are size when only a hole is left.
func nextData(f *os.File, at, size int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && from >= size {
		return size, size, nil
	}
	if errors.Is(err, unix.EINVAL) { // a filesystem that knows no holes
		return at, size, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find data: %w", err)
	}
	if to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
		return 0, 0, fmt.Errorf("find a hole: %w", err)
	}
	return from, min(to, size), nil
}
