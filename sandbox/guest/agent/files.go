package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// openRegular opens a regular file for reading and nothing else: opening a
// pipe or a device for reading may wait for ever or do things.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var errNotRegular = errors.New("not a regular file")

// readUpTo fills b as far as the file goes.
func readUpTo(f *os.File, b []byte) (int, error) {
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// filePath checks and resolves a path that a host named.
func (a *Agent) filePath(path string) (string, error) {
	if path == "" || len(path) >= wire.MaxPath || strings.ContainsRune(path, 0) {
		return "", fault.InvalidField("path", "give a path of 1 to %d bytes", wire.MaxPath-1)
	}
	return a.resolve(path), nil
}

func fileError(err error, doing, path string) error {
	if errors.Is(err, errNotRegular) {
		return fault.New(fault.Invalid, "%s %s: not a regular file", doing, wire.Printable(path, 512))
	}
	return systemError(err, doing+" "+wire.Printable(path, 512))
}

// readFile sends a regular file.
func (s *session) readFile(st *yamux.Stream, args wire.Read) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	f, err := openRegular(path)
	if err != nil {
		return fileError(err, "read", path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fileError(err, "read", path)
	}
	if !s.reply(st, wire.File{Size: info.Size(), Mode: uint32(info.Mode().Perm())}, nil) {
		return nil
	}
	// A host that leaves early is noticed while the window is full.
	left := watch(st)
	frames := wire.NewFrameWriter(st)
	err = frames.Copy(wire.KindData, f)
	if _, gone := errors.AsType[*wire.WriteError](err); !gone {
		if err != nil {
			err = fileError(err, "read", path)
		}
		conclude(frames, err)
	}
	<-left
	return nil
}

// watch reads a stream on which the host has nothing more to say, until it
// ends, and then unblocks who writes to it.
func watch(st *yamux.Stream) <-chan struct{} {
	left := make(chan struct{})
	go func() { // ends with the stream
		defer close(left)
		untilLeft(st)
		st.SetWriteDeadline(longAgo)
	}()
	return left
}

// writeFile receives a file. It appears whole or not at all: a transfer that
// breaks off, by the loss of the connection for one, changes nothing.
func (s *session) writeFile(st *yamux.Stream, args wire.Write) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	if args.Path[len(args.Path)-1] == '/' {
		return fault.InvalidField("path", "%s names a directory", wire.Printable(args.Path, 512))
	}
	w, err := createAtomic(path, fs.FileMode(args.Mode).Perm())
	if err != nil {
		return fileError(err, "write", path)
	}
	defer w.abort()
	if !s.reply(st, nil, nil) {
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
				conclude(result, fileError(err, "write", path))
				return nil
			}
		case wire.KindEOF:
			if err = w.commit(); err != nil {
				err = fileError(err, "write", path)
			}
			conclude(result, err)
			return nil
		default:
			conclude(result, invalidRequest(wire.Violation("frame of kind %d in a file", kind)))
			return nil
		}
	}
}

// atomicFile is a file in the making.
type atomicFile struct {
	*os.File
	target string
	done   bool
}

// createAtomic begins a file that will replace target. A symbolic link is
// written through, as every editor that keeps links does; a file that is
// replaced passes on its owner.
func createAtomic(target string, perm fs.FileMode) (*atomicFile, error) {
	if resolved, err := filepath.EvalSymlinks(target); err == nil {
		target = resolved
	}
	old, err := os.Stat(target)
	if err == nil && old.IsDir() {
		return nil, syscall.EISDIR
	}
	if err == nil && !old.Mode().IsRegular() {
		return nil, errNotRegular
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".sandgate-*")
	if err != nil {
		return nil, err
	}
	w := &atomicFile{File: f, target: target}
	if old != nil {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(st.Uid), int(st.Gid)) // as far as it is allowed
		}
	}
	if err := f.Chmod(perm); err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// take writes the payload of a frame.
func (w *atomicFile) take(frame *wire.FrameReader) error {
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if err != nil {
			return err
		}
		if _, err := w.Write(buf.Payload()[:n]); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the file appear, durably.
func (w *atomicFile) commit() error {
	if err := w.Sync(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.Name(), w.target); err != nil {
		return err
	}
	w.done = true
	dir, err := os.Open(filepath.Dir(w.target))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// abort removes what was begun, unless it was committed.
func (w *atomicFile) abort() {
	if !w.done {
		w.Close()
		os.Remove(w.Name())
	}
}
