package agent

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// maxArchives bounds the archives under way at once: each takes a few megabytes
// of a sandbox's memory. Others wait.
const maxArchives = 8

// pack sends an archive of a directory or a file.
func (s *session) pack(st *yamux.Stream, args wire.Pack) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	format := tree.Format(args.Format)
	if !format.Valid() {
		return fault.InvalidField("format", `must be "tar", "tar.gz" or "zip"`)
	}
	as, err := s.agent.identity(args.User)
	if err != nil {
		return err
	}
	// What is wrong with the path is said before the first byte.
	if err := as(func() error { _, err := entryAt(path, true); return err }); err != nil {
		return fileError(err, "pack", path)
	}
	if !s.reply(st, nil, nil) {
		return nil
	}
	ctx, left := whileThere(st)
	frames := wire.NewFrameWriter(st)
	if s.agent.takeArchive(ctx) {
		out := newFrameBuffer(frames)
		var totals tree.Totals
		err := as(func() (err error) {
			totals, err = tree.Pack(ctx, path, format, out)
			return err
		})
		if err == nil {
			err = out.flush()
		}
		out.release()
		s.agent.doneArchive()
		if err != nil {
			err = pathError(err, "pack", path)
		}
		conclude(frames, archived(totals), err)
	}
	<-left
	return nil
}

// frameBuffer makes large frames of small writes.
type frameBuffer struct {
	frames *wire.FrameWriter
	buf    *wire.Buf
	n      int
}

func newFrameBuffer(frames *wire.FrameWriter) *frameBuffer {
	return &frameBuffer{frames: frames, buf: wire.Buffer(wire.MaxPayload)}
}

func (b *frameBuffer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := copy(b.buf.Payload()[b.n:], p)
		b.n += n
		written += n
		p = p[n:]
		if b.n == len(b.buf.Payload()) {
			if err := b.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (b *frameBuffer) flush() error {
	if b.n == 0 {
		return nil
	}
	err := b.frames.Filled(wire.KindData, b.buf, b.n)
	b.n = 0
	return err
}

func (b *frameBuffer) release() { b.buf.Release() }

// unpack receives an archive and unpacks it into a directory.
func (s *session) unpack(st *yamux.Stream, args wire.Unpack) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	format := tree.Format(args.Format)
	if !format.Valid() {
		return fault.InvalidField("format", `must be "tar", "tar.gz" or "zip"`)
	}
	if args.MaxBytes < 0 || args.MaxEntries < 0 {
		return fault.InvalidField("maxBytes", "bounds cannot be negative")
	}
	as, err := s.agent.identity(args.User)
	if err != nil {
		return err
	}
	var root *os.File
	var limits tree.Limits
	err = as(func() (err error) {
		root, limits, err = openTarget(path, args)
		return err
	})
	if err != nil {
		return fileError(err, "unpack into", path)
	}
	defer root.Close()
	// Nothing can be noticed of a host that leaves while the content is not
	// read; so it is read before there is room for the archive to be unpacked.
	if !s.reply(st, nil, nil) {
		return nil
	}
	in := newDataReader(st)
	defer in.finish()
	ctx := in.ctx
	if _ = in.fill(); in.lost || !s.agent.takeArchive(ctx) {
		return nil
	}
	defer s.agent.doneArchive()
	var totals tree.Totals
	err = as(func() (err error) {
		totals, err = tree.Unpack(ctx, root, format, in, limits, func() (*os.File, error) { return scratch(path) })
		return err
	})
	if in.lost {
		return nil
	}
	if err == nil {
		_, err = io.Copy(io.Discard, in) // what a tar is padded with
		if in.lost {
			return nil
		}
	}
	if err != nil {
		err = pathError(err, "unpack", path)
	}
	conclude(wire.NewFrameWriter(st), archived(totals), err)
	return nil
}

// dataReader reads the data that the host sends until its end.
type dataReader struct {
	ctx    context.Context // ends when the host has left
	cancel func()
	st     *yamux.Stream
	frames *wire.FrameReader
	left   <-chan struct{} // not nil once the data has ended
	lost   bool            // the host left before
	err    error
}

func newDataReader(st *yamux.Stream) *dataReader {
	d := &dataReader{st: st, frames: wire.NewFrameReader(st)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// finish waits for the host to leave, when it has nothing more to say.
func (d *dataReader) finish() {
	if d.left != nil {
		<-d.left
	}
	d.cancel()
}

// fill makes sure that there is something to read, or the end of it is known.
func (d *dataReader) fill() error {
	for d.err == nil && d.frames.Left() == 0 {
		kind, _, err := d.frames.Next()
		switch {
		case err != nil:
			d.err, d.lost = err, true
			d.cancel()
		case kind == wire.KindEOF:
			d.err = io.EOF
			d.left = watch(d.st)
			go func() { // ends with the stream
				<-d.left
				d.cancel()
			}()
		case kind != wire.KindData:
			d.err = invalidRequest(wire.Violation("frame of kind %d in an archive", kind))
		}
	}
	return d.err
}

func (d *dataReader) Read(b []byte) (int, error) {
	if err := d.fill(); err != nil {
		return 0, err
	}
	n, err := d.frames.Read(b)
	if err != nil {
		d.err, d.lost = err, true
		d.cancel()
	}
	return n, err
}

// openTarget opens the directory that is unpacked into, and says how much may
// go there: no more than its disk has free.
func openTarget(path string, args wire.Unpack) (*os.File, tree.Limits, error) {
	limits := tree.Limits{Bytes: args.MaxBytes, Entries: args.MaxEntries}
	if _, err := mkdirAll(path, 0o755); err != nil {
		return nil, limits, err
	}
	root, err := tree.OpenDir(path)
	if err != nil {
		return nil, limits, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err == nil && fs.Blocks > 0 {
		free := int64(min(fs.Bavail, 1<<62/uint64(max(fs.Bsize, 1)))) * fs.Bsize
		if free = max(free, 1); limits.Bytes == 0 || free < limits.Bytes {
			limits.Bytes = free
		}
	}
	return root, limits, nil
}

// scratch opens a file without a name, on the disk that the archive is unpacked
// to: it counts there, and ends with the guest at the latest.
func scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".sandgate-*")
	if errors.Is(err, os.ErrPermission) {
		f, err = os.CreateTemp("/tmp", ".sandgate-*")
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func archived(t tree.Totals) wire.Archived {
	return wire.Archived{Files: t.Files, Dirs: t.Dirs, Links: t.Links, Bytes: t.Bytes, Skipped: t.Skipped, First: wire.Printable(t.First, 256)}
}

// takeArchive waits for room for one more archive.
func (a *Agent) takeArchive(ctx context.Context) bool {
	select {
	case a.archives <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-a.down:
	}
	return false
}

func (a *Agent) doneArchive() {
	<-a.archives
	a.moved(bulk)
}
