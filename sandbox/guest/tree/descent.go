package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// maxOpen bounds the descriptors of one descent, and readSize what is read of a
// directory at once.
const (
	maxOpen  = 48
	readSize = 16 << 10
)

// errMoved means that the way back up is not the way that led down.
var errMoved = errors.New("a directory was moved while it was read")

// descent is a way down a tree: the directories from the root to one of them,
// each read as far as it has been. It holds no more than maxOpen descriptors
// however deep it goes; those further up are found again through "..".
type descent struct {
	levels []level
	path   []byte // of the innermost directory, relative to the root
}

// level is one directory on the way.
type level struct {
	fd       int // -1 while it is not held open
	dev, ino uint64
	end      int    // how much of path leads to the directory above
	pos      int64  // where reading goes on
	unread   []byte // entries that were read and not handed out
	buf      []byte
	removed  bool // something in it was removed since it was entered
}

// begin starts at a directory. The descent owns the descriptor.
func begin(fd int) (*descent, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &descent{levels: []level{{fd: fd, dev: st.Dev, ino: st.Ino}}}, nil
}

func (d *descent) close() {
	for _, l := range d.levels {
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
	}
	d.levels = nil
}

func (d *descent) top() *level { return &d.levels[len(d.levels)-1] }

// down enters a directory of the innermost one, unless refuse, which is given
// its descriptor and whether it lies on another filesystem, returns an error.
func (d *descent) down(name string, refuse func(fd int, crossed bool) error) error {
	parent := d.top()
	fd, st, err := openDirAt(parent.fd, name)
	if err != nil {
		return err
	}
	if err := refuse(fd, st.Dev != parent.dev); err != nil {
		unix.Close(fd)
		return err
	}
	end := len(d.path)
	if end > 0 {
		d.path = append(d.path, '/')
	}
	d.path = append(d.path, name...)
	d.levels = append(d.levels, level{fd: fd, dev: st.Dev, ino: st.Ino, end: end})
	if n := len(d.levels) - 1 - maxOpen; n > 0 { // the root stays
		far := &d.levels[n]
		unix.Close(far.fd)
		far.fd, far.buf, far.unread = -1, nil, nil // pos says where to go on
	}
	return nil
}

// up leaves the innermost directory, which is not the root, and returns its
// name.
func (d *descent) up() (string, error) {
	child := d.top()
	parent := &d.levels[len(d.levels)-2]
	if parent.fd < 0 {
		fd, st, err := openDirAt(child.fd, "..")
		if err != nil {
			return "", err
		}
		if st.Dev != parent.dev || st.Ino != parent.ino {
			err = errMoved
		}
		if err == nil {
			_, err = unix.Seek(fd, parent.pos, 0)
		}
		if err != nil {
			unix.Close(fd)
			return "", err
		}
		parent.fd = fd
	}
	unix.Close(child.fd)
	name := string(bytes.TrimPrefix(d.path[child.end:], []byte("/")))
	d.path = d.path[:child.end]
	d.levels = d.levels[:len(d.levels)-1]
	return name, nil
}

// rewind reads the innermost directory from its beginning.
func (d *descent) rewind() error {
	l := d.top()
	l.pos, l.unread, l.removed = 0, nil, false
	_, err := unix.Seek(l.fd, 0, 0)
	return err
}

// The layout of struct linux_dirent64.
const (
	direntNext = 8
	direntLen  = 16
	direntType = 18
	direntName = 19
)

// next returns the next entry of the innermost directory and what type the
// filesystem says it has; at the end the name is empty.
func (d *descent) next() (name string, kind byte, err error) {
	l := d.top()
	for {
		if len(l.unread) == 0 {
			if l.buf == nil {
				l.buf = make([]byte, readSize)
			}
			n, err := retry(func() (int, error) { return unix.Getdents(l.fd, l.buf) })
			if err != nil || n <= 0 {
				return "", 0, err
			}
			l.unread = l.buf[:n]
		}
		e := l.unread
		if len(e) < direntName {
			return "", 0, unix.EIO
		}
		size := int(binary.NativeEndian.Uint16(e[direntLen:]))
		if size < direntName || size > len(e) {
			return "", 0, unix.EIO
		}
		l.unread = e[size:]
		l.pos = int64(binary.NativeEndian.Uint64(e[direntNext:]))
		raw, _, _ := bytes.Cut(e[direntName:size], []byte{0})
		if len(raw) == 0 || string(raw) == "." || string(raw) == ".." || bytes.IndexByte(raw, '/') >= 0 {
			continue
		}
		return string(raw), e[direntType], nil
	}
}

// at is the path of an entry of the innermost directory.
func (d *descent) at(name string) string {
	if len(d.path) == 0 {
		return name
	}
	return string(d.path) + "/" + name
}

// openat opens relative to a directory. O_NONBLOCK keeps a pipe from holding
// the caller, should one have taken the place of what was looked at.
func openat(dir int, name string, flags int) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	})
}

// openDirAt opens a directory of a directory, and no link to one. O_DIRECTORY
// would say so shorter; but there, gVisor follows links against O_NOFOLLOW.
func openDirAt(dir int, name string) (int, *unix.Stat_t, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

// OpenDir opens a directory, following links to it.
func OpenDir(path string) (*os.File, error) {
	fd, err := openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry repeats a system call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		if v, err := call(); !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}
