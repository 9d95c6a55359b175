package agent

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// newFileMode is the mode of a file for which nobody said one.
const newFileMode = 0o644

// writeFile receives a file. It appears whole or not at all: a transfer that
// breaks off, by the loss of the connection for one, changes nothing.
func (s *session) writeFile(st *yamux.Stream, args wire.Write) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	if args.Path[len(args.Path)-1] == '/' {
		return fault.InvalidField("path", "%s names a directory", wire.Printable(string(args.Path), 512))
	}
	if args.Mode > wire.MaxMode {
		return fault.InvalidField("mode", "has bits beyond 07777")
	}
	as, err := s.agent.identity(args.User)
	if err != nil {
		return err
	}
	var w *fileWriter
	err = as(func() (err error) {
		w, err = newFileWriter(path, args)
		return err
	})
	if err != nil {
		return fileError(err, "write", path)
	}
	defer func() { _ = as(func() error { w.abort(); return nil }) }()
	var made any
	if args.Options {
		made = w.made
	}
	if !s.reply(st, made, nil) {
		return nil
	}
	result := wire.NewFrameWriter(st)
	in := wire.NewFrameReader(st)
	for {
		kind, _, err := in.Next()
		if err != nil {
			return nil // the host has given up
		}
		switch kind {
		case wire.KindData:
			if err := w.take(in); err != nil {
				conclude(result, nil, fileError(err, "write", path))
				return nil
			}
		case wire.KindEOF:
			if err = as(w.commit); err != nil {
				err = fileError(err, "write", path)
			}
			conclude(result, nil, err)
			return nil
		default:
			conclude(result, nil, invalidRequest(wire.Violation("frame of kind %d in a file", kind)))
			return nil
		}
	}
}

// fileWriter is a file in the making, or one that is written to at its end.
type fileWriter struct {
	*os.File
	dir  *os.File // where the file will appear
	base string
	temp string // its name until then; empty when appending
	made wire.Made
	size *int64 // what is to come, if that is known
	took int64
	done bool
}

func newFileWriter(path string, args wire.Write) (*fileWriter, error) {
	// A symbolic link is written through, as every editor that keeps links
	// does. One that leads nowhere is replaced.
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	old, err := os.Stat(path)
	if err == nil && old.IsDir() {
		return nil, syscall.EISDIR
	}
	if err == nil && !old.Mode().IsRegular() {
		return nil, errNotRegular
	}
	made := wire.Made{Dir: wire.Path(filepath.Dir(path))}
	if args.Parents || !args.Options {
		if made.Created, err = mkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
	}
	// From here on the directory is the one that was found, whatever happens
	// to the way that led to it.
	dir, err := tree.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	w := &fileWriter{dir: dir, base: filepath.Base(path), made: made, size: args.Size}
	if args.Append {
		err = w.openEnd(args)
	} else {
		err = w.create(args, old)
	}
	if err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// open opens a file of the directory for writing, and nothing that a link of
// that name leads to.
func (w *fileWriter) open(name string, flags int, mode uint32) (*os.File, error) {
	flags |= unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	for {
		fd, err := unix.Openat(int(w.dir.Fd()), name, flags, mode)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case err != unix.EINTR:
			return nil, err
		}
	}
}

// create begins a file that will replace what has its name. A file that is
// replaced passes on its owner, and its mode where no other is asked for.
func (w *fileWriter) create(args wire.Write, old fs.FileInfo) (err error) {
	temp := ".sandgate-" + rand.Text()
	if w.File, err = w.open(temp, unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
		return err
	}
	w.temp = temp
	mode := args.Mode
	if old != nil {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			_ = w.Chown(int(st.Uid), int(st.Gid)) // as far as it is allowed
			if mode == 0 && args.Options {
				mode = st.Mode & wire.MaxMode
			}
		}
	}
	if mode == 0 && args.Options {
		mode = newFileMode
	}
	return unix.Fchmod(int(w.Fd()), mode)
}

// openEnd opens a file for writing at its end, making it when it is missing.
func (w *fileWriter) openEnd(args wire.Write) error {
	mode := args.Mode
	if mode == 0 {
		mode = newFileMode
	}
	f, err := w.open(w.base, unix.O_APPEND|unix.O_CREAT|unix.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		f, err = w.open(w.base, unix.O_APPEND, 0)
	}
	if errors.Is(err, syscall.ENXIO) { // a pipe that nobody reads
		err = errNotRegular
	}
	if err != nil {
		return err
	}
	w.File = f
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	return err
}

// take writes the payload of a frame.
func (w *fileWriter) take(frame *wire.FrameReader) error {
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if err != nil {
			return err
		}
		if w.took += int64(n); w.size != nil && w.took > *w.size {
			return w.wrongSize()
		}
		if _, err := w.Write(buf.Payload()[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (w *fileWriter) wrongSize() error {
	return fault.InvalidField("size", "%d bytes were announced and %d came; the file stays as it was", *w.size, w.took)
}

// commit makes the file appear. It is not forced to the disk: that is for the
// sandbox's own programs to ask for, and costs more than all the rest.
func (w *fileWriter) commit() error {
	if w.size != nil && w.took != *w.size {
		return w.wrongSize()
	}
	if err := w.Close(); err != nil {
		return err
	}
	if w.temp != "" {
		dir := int(w.dir.Fd())
		if err := unix.Renameat(dir, w.temp, dir, w.base); err != nil {
			return err
		}
	}
	w.done = true
	return nil
}

// abort closes what is open and removes what was begun, unless it was
// committed, and the directories that were made for it.
func (w *fileWriter) abort() {
	if w.File != nil {
		w.File.Close()
	}
	if !w.done && w.temp != "" {
		_ = unix.Unlinkat(int(w.dir.Fd()), w.temp, 0)
	}
	w.dir.Close()
	if w.done {
		return
	}
	dir := string(w.made.Dir)
	for range w.made.Created {
		if os.Remove(dir) != nil { // somebody has put something there
			return
		}
		dir = filepath.Dir(dir)
	}
}

// mkdirAll makes a directory and those above it, and returns how many were
// missing.
func mkdirAll(dir string, mode fs.FileMode) (created int, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return 0, nil
	case err == nil:
		return 0, syscall.ENOTDIR
	case !errors.Is(err, fs.ErrNotExist) || dir == "/":
		return 0, err
	}
	if created, err = mkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return created, err
	}
	err = os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) { // somebody was faster, or a link leads nowhere
		if info, serr := os.Stat(dir); serr != nil || !info.IsDir() {
			return created, err
		}
		return 0, nil
	}
	if err != nil {
		return created, err
	}
	return created + 1, nil
}
