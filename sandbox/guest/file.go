package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// WriteFile writes a file atomically inside the sandbox, making parent
// directories; a relative path resolves against the workspace. perm is kept.
// An error of content is returned as it is and leaves the file as it was. ctx
// does not interrupt a Read of content.
//
// Codes: Invalid when the path is none or names a directory, Denied, Exhausted
// when the disk is full.
func (c *Conn) WriteFile(ctx context.Context, path string, perm fs.FileMode, content io.Reader) error {
	o, err := c.open(ctx, wire.OpWrite, wire.Write{Path: path, Mode: uint32(perm.Perm())})
	if err != nil {
		return err
	}
	defer o.leave()
	if err := o.answer(ctx, nil); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { o.SetDeadline(longAgo) })
	defer stop()

	// The guest may answer at any time, when the disk is full for one; that
	// ends the sending.
	result := make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		result <- o.result(ctx, wire.NewFrameReader(o))
		o.SetWriteDeadline(longAgo)
	})
	frames := wire.NewFrameWriter(o)
	err = frames.Copy(wire.KindData, content)
	if _, sending := errors.AsType[*wire.WriteError](err); err != nil && !sending {
		o.SetReadDeadline(longAgo)
		o.leave() // without an end of the data, so the guest drops it
		return err
	}
	if err == nil {
		_ = frames.Fact(wire.KindEOF, nil) // if that fails, so does the reader
	}
	return <-result
}

// result reads the frame that ends a transfer.
func (o *operation) result(ctx context.Context, frames *wire.FrameReader) error {
	kind, _, err := frames.Next()
	if err == nil && kind != wire.KindResult {
		err = wire.Violation("frame of kind %d instead of a result", kind)
	}
	if err != nil {
		return o.failed(ctx, err)
	}
	return o.readResult(ctx, frames)
}

func (o *operation) readResult(ctx context.Context, frames *wire.FrameReader) error {
	var response wire.Response
	if err := frames.JSON(&response); err != nil {
		return o.failed(ctx, err)
	}
	return o.conn.unpack(response, nil)
}

// File is a file of a sandbox that is being read.
type File struct {
	op     *operation
	frames *wire.FrameReader
	info   wire.File
	err    error // the end
}

// ReadFile opens a regular file inside the sandbox; the caller closes it. ctx
// bounds the opening. What it returns is a *File. Reading ends with io.EOF only
// when the whole file has arrived.
//
// Codes: NotFound, Denied, Invalid when it is no regular file.
func (c *Conn) ReadFile(ctx context.Context, path string) (io.ReadCloser, error) {
	o, err := c.open(ctx, wire.OpRead, wire.Read{Path: path})
	if err != nil {
		return nil, err
	}
	f := &File{op: o, frames: wire.NewFrameReader(o)}
	if err := o.answer(ctx, &f.info); err != nil {
		o.leave()
		return nil, err
	}
	if err := checkFile(f.info); err != nil {
		return nil, c.violated(err)
	}
	return f, nil
}

// Size is what the file had when it was opened. What is read may be more or
// less.
func (f *File) Size() int64 { return f.info.Size }

// Mode is the permission bits.
func (f *File) Mode() fs.FileMode { return fs.FileMode(f.info.Mode) }

// Read reads on.
func (f *File) Read(b []byte) (int, error) {
	if f.err != nil || len(b) == 0 {
		return 0, f.err
	}
	for f.frames.Left() == 0 {
		if f.err = f.next(); f.err != nil {
			return 0, f.err
		}
	}
	n, err := f.frames.Read(b)
	if err != nil {
		f.err = f.op.failed(context.Background(), err)
	}
	return n, f.err
}

func (f *File) next() error {
	ctx := context.Background()
	kind, _, err := f.frames.Next()
	switch {
	case err != nil:
		return f.op.failed(ctx, err)
	case kind == wire.KindData:
		return nil
	case kind != wire.KindResult:
		return f.op.conn.violated(wire.Violation("frame of kind %d in a file", kind))
	}
	if err := f.op.readResult(ctx, f.frames); err != nil {
		return err
	}
	return io.EOF
}

// Close ends the reading. It is not an error to close early.
func (f *File) Close() error {
	f.op.leave()
	return nil
}
