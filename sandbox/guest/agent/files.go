package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// openRegular opens a regular file for reading and nothing else: opening a
// pipe or a device for reading may wait for ever or do things. What is there is
// looked at before; should it change in between, opening does not wait.
func openRegular(path string) (*os.File, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, errNotRegular
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	for errors.Is(err, syscall.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	// Some of what the kernel shows as regular files has nothing to read at
	// times, /proc/kmsg for one. Reading it shall say so and not wait: package
	// os waits for descriptors that do not block when it first sees them.
	err = unix.SetNonblock(fd, false)
	f := os.NewFile(uintptr(fd), path)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		f.Close()
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
func (a *Agent) filePath(path wire.Path) (string, error) {
	if !path.Whole() {
		return "", fault.InvalidField("path", "give a path of 1 to %d bytes", wire.MaxPath-1)
	}
	full := a.resolve(string(path))
	if len(full) >= wire.MaxPath {
		return "", fault.InvalidField("path", "is longer than %d bytes from the root on", wire.MaxPath-1)
	}
	return full, nil
}

func fileError(err error, doing, path string) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	shown := wire.Printable(path, 512)
	switch {
	case errors.Is(err, errNotRegular), errors.Is(err, syscall.EAGAIN):
		return fault.New(fault.Invalid, "%s %s: not a regular file", doing, shown)
	case errors.Is(err, tree.ErrMount):
		return fault.Wrap(err, fault.Busy, "%s %s: is a mount point", doing, shown)
	}
	return systemError(err, doing+" "+shown)
}

// readFile sends a regular file, or a part of it.
func (s *session) readFile(st *yamux.Stream, args wire.Read) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	if args.Offset < 0 || args.Length < 0 {
		return fault.InvalidField("offset", "neither offset nor length can be negative")
	}
	as, err := s.agent.identity(args.User)
	if err != nil {
		return err
	}
	var f *os.File
	var info fs.FileInfo
	err = as(func() (err error) {
		if f, err = openRegular(path); err != nil {
			return err
		}
		if info, err = f.Stat(); err == nil && args.Offset > 0 {
			_, err = f.Seek(args.Offset, io.SeekStart)
		}
		return err
	})
	if f != nil {
		defer f.Close()
	}
	if err != nil {
		return fileError(err, "read", path)
	}
	if !s.reply(st, wire.File{Size: info.Size(), Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UnixNano()}, nil) {
		return nil
	}
	var content io.Reader = f
	if args.Length > 0 {
		content = io.LimitReader(f, args.Length)
	}
	// A host that leaves early is noticed while the window is full.
	left := watch(st)
	frames := wire.NewFrameWriter(st)
	err = frames.Copy(wire.KindData, content)
	if _, gone := errors.AsType[*wire.WriteError](err); !gone {
		if err != nil {
			err = fileError(err, "read", path)
		}
		conclude(frames, nil, err)
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
