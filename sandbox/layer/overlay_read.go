package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// ReadOverlay makes dir, which does not exist yet and whose parent does, in the
// overlay form from an archive in the neutral one. The archive may come from
// anywhere. After an error nothing is left of dir.
//
// Owners and set-user-id bits are kept as the archive has them, because they
// mean the users of a sandbox: the folder that dir is in must not be open to
// the users of the host. Of the extended attributes the user's own, file
// capabilities and access control lists are kept; one that would steer the
// overlay is refused. Zeros become holes.
func ReadOverlay(ctx context.Context, r io.Reader, dir string, o Limits) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return failure(err, "make the layer")
	}
	err := readOverlay(ctx, r, dir, o)
	if err != nil {
		if left := os.RemoveAll(dir); left != nil {
			err = fault.Wrap(errors.Join(err, left), fault.CodeOf(err), "%s", fault.From(err).Error())
		}
	}
	return err
}

func readOverlay(ctx context.Context, r io.Reader, dir string, o Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failure(err, "make the layer")
	}
	x := &overlayReader{root: root, dirs: map[string]*Entry{"/": {Path: "/", Type: Dir, Mode: 0o755}}, buf: make([]byte, 256<<10)}
	defer x.close()
	if err := scan(ctx, r, neutralForm, o, x.entry); err != nil {
		return failure(err, "make the layer")
	}
	if err := x.finish(); err != nil {
		return failure(err, "make the layer")
	}
	if o.Sync {
		return Sync(dir)
	}
	return nil
}

// Sync makes everything that was written to the filesystem that dir is on
// durable, dir's own name included.
func Sync(dir string) error {
	f, err := openDirectory(dir)
	if err != nil {
		return failure(err, "sync the layer")
	}
	defer f.Close()
	return failure(unix.Syncfs(int(f.Fd())), "sync the layer")
}

// overlayReader fills a tree that nobody else writes to. That every parent is
// a directory which the archive itself has made is known from the scanner;
// os.Root sees to it even if that were wrong.
type overlayReader struct {
	root *os.Root
	dirs map[string]*Entry // how directories are to be in the end
	gone []string          // deletions
	open *os.File          // the directory last worked in …
	path string            // … and its path
	buf  []byte
}

func (x *overlayReader) close() {
	if x.open != nil {
		x.open.Close()
	}
	x.root.Close()
}

// enter opens the directory p.
func (x *overlayReader) enter(p string) (int, error) {
	if x.open != nil && x.path == p {
		return int(x.open.Fd()), nil
	}
	f, err := x.root.OpenFile("."+p, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	if x.open != nil {
		x.open.Close()
	}
	x.open, x.path = f, p
	return int(f.Fd()), nil
}

func (x *overlayReader) entry(e *Entry, content io.Reader) error {
	if e.Type == Dir && x.dirs[e.Path] != nil {
		x.dirs[e.Path] = e // known better now
		return nil
	}
	dir, err := x.enter(path.Dir(e.Path))
	if err != nil {
		return err
	}
	base := path.Base(e.Path)
	switch {
	case e.Deleted:
		x.gone = append(x.gone, e.Path)
		return unix.Mknodat(dir, base, unix.S_IFCHR, 0)
	case e.Type == Dir:
		// It may have been deleted below, and be made anew.
		if err := unix.Unlinkat(dir, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		x.dirs[e.Path] = e
		return unix.Mkdirat(dir, base, 0o700)
	}
	return x.file(dir, base, e, content)
}

// file makes what is no directory. A mark of deletion that has come before it
// has no more to say.
func (x *overlayReader) file(dir int, base string, e *Entry, content io.Reader) error {
	err := x.make(dir, base, e, content)
	if errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(dir, base, 0); err != nil {
			return err
		}
		err = x.make(dir, base, e, content)
	}
	if errors.Is(err, unix.EMLINK) {
		return refuse(e.Path, "is one hard link too many")
	}
	return err
}

func (x *overlayReader) make(dir int, base string, e *Entry, content io.Reader) error {
	switch {
	case e.Same != "":
		return x.root.Link("."+e.Same, "."+e.Path)
	case e.Type == Link:
		if err := unix.Symlinkat(e.Target, dir, base); err != nil {
			return err
		}
		if err := own(dir, base, e); err != nil {
			return err
		}
		return setTimes(dir, base, e.ModTime)
	case e.Type == Other:
		if err := unix.Mknodat(dir, base, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		if err := own(dir, base, e); err != nil {
			return err
		}
		if err := unix.Fchmodat(dir, base, e.Mode, 0); err != nil {
			return err
		}
		return setTimes(dir, base, e.ModTime)
	}
	fd, err := unix.Openat(dir, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if err := writeSparse(f, content, x.buf); err != nil {
		return err
	}
	if err := dress(fd, e); err != nil {
		return err
	}
	return f.Close()
}

// writeSparse writes content and leaves out whole blocks of zeros.
func writeSparse(f *os.File, content io.Reader, buf []byte) error {
	const block = 4096
	var size, end int64 // of the content, and of what is written
	for {
		n, err := fill(content, buf)
		data := buf[:n]
		for len(data) > 0 {
			zeros := 0
			for zeros < len(data) && isZero(data[zeros:min(zeros+block, len(data))]) {
				zeros = min(zeros+block, len(data))
			}
			size, data = size+int64(zeros), data[zeros:]
			filled := 0
			for filled < len(data) && !isZero(data[filled:min(filled+block, len(data))]) {
				filled = min(filled+block, len(data))
			}
			if filled == 0 {
				continue
			}
			if _, err := f.WriteAt(data[:filled], size); err != nil {
				return err
			}
			size, data = size+int64(filled), data[filled:]
			end = size
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if end < size {
		return f.Truncate(size)
	}
	return nil
}

// fill reads until buf is full or there is no more.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

var zeroBlock [4096]byte

func isZero(b []byte) bool { return string(b) == string(zeroBlock[:len(b)]) }

func own(dir int, base string, e *Entry) error {
	if err := unix.Fchownat(dir, base, e.UID, e.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the owner of %.200q: %w", base, err)
	}
	return nil
}

func setTimes(dir int, base string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// dress gives an open file or directory all that its entry says. The order
// matters: a change of the owner takes the set-user-id bit and capabilities
// away.
func dress(fd int, e *Entry) error {
	if err := unix.Fchown(fd, e.UID, e.GID); err != nil {
		return fmt.Errorf("set the owner of %.200q: %w", e.Path, err)
	}
	if err := unix.Fchmod(fd, e.Mode); err != nil {
		return err
	}
	if err := setXattrs(fd, e); err != nil {
		return err
	}
	if e.Opaque && e.Type == Dir {
		if err := setOpaque(fd); err != nil {
			return fmt.Errorf("mark %.200q: %w", e.Path, err)
		}
	}
	ts, err := unix.TimeToTimespec(e.ModTime)
	if err != nil {
		return err
	}
	// By descriptor: the empty path.
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{ts, ts}, unix.AT_EMPTY_PATH)
}

// finish gives the directories what filling them would have undone, the inner
// ones first, as an outer one may come to be closed to a user who is not root.
func (x *overlayReader) finish() error {
	if err := x.dropIdle(); err != nil {
		return err
	}
	paths := deepestFirst(x.dirs)
	for _, p := range paths {
		e := x.dirs[p]
		if e.ModTime.IsZero() {
			e.ModTime = time.Unix(0, 0)
		}
		fd, err := x.enter(p)
		if err != nil {
			return err
		}
		if err := dress(fd, e); err != nil {
			return err
		}
	}
	return nil
}

// dropIdle takes deletions away that say nothing.
func (x *overlayReader) dropIdle() error {
	for _, p := range x.gone {
		if x.dirs[p] != nil || !idle(x.dirs, p) {
			continue
		}
		dir, err := x.enter(path.Dir(p))
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(dir, path.Base(p), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if !isWhiteout(&st) {
			continue // a file has come in its place
		}
		if err := unix.Unlinkat(dir, path.Base(p), 0); err != nil {
			return err
		}
	}
	return nil
}
