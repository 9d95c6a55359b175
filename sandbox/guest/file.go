package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
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
	return c.transfer(ctx, wire.OpWrite, wire.Write{Path: wire.Path(path), Mode: uint32(perm.Perm())}, nil, content, nil)
}

// WriteOptions say how PutFile writes.
type WriteOptions struct {
	// User writes; root when empty. Owners of files that are replaced stay.
	User string
	// Mode is the lowest twelve bits. 0 keeps that of a file that is replaced,
	// and is 0644 for a new one.
	Mode uint32
	// Parents makes directories that are missing.
	Parents bool
	// Append writes to the end of the file, as content comes; it is the one way
	// of writing that may leave half of it.
	Append bool
	// Size is what content has to have, if not nil.
	Size *int64
}

// PutFile writes a file as WriteFile does, with options, and returns the
// directories that it made, outermost first.
//
// Codes: as WriteFile; NotFound when the directory is missing, Invalid when
// the size is not what was announced, Unsupported by an older guest.
func (c *Conn) PutFile(ctx context.Context, path string, o WriteOptions, content io.Reader) ([]string, error) {
	if err := c.needFiles(); err != nil {
		return nil, err
	}
	args := wire.Write{
		Path: wire.Path(path), Mode: o.Mode, Options: true, User: o.User, Parents: o.Parents, Append: o.Append, Size: o.Size,
	}
	var made wire.Made
	if err := c.transfer(ctx, wire.OpWrite, args, &made, content, nil); err != nil {
		return nil, err
	}
	return c.directories(made)
}

// directories returns the directories that were made, outermost first.
func (c *Conn) directories(made wire.Made) ([]string, error) {
	dirs, err := madeDirs(made)
	if err != nil {
		return nil, c.violated(err)
	}
	return dirs, nil
}

func madeDirs(made wire.Made) ([]string, error) {
	dir := string(made.Dir)
	if !made.Dir.Whole() || !path.IsAbs(dir) || path.Clean(dir) != dir {
		return nil, wire.Violation("the directory %q", wire.Printable(dir, 64))
	}
	if made.Created < 0 || made.Created > wire.MaxPath/2 {
		return nil, wire.Violation("%d directories were made", made.Created)
	}
	dirs := make([]string, made.Created)
	for i := len(dirs) - 1; i >= 0; i-- {
		if dir == "/" {
			return nil, wire.Violation("more directories were made than there are")
		}
		dirs[i] = dir
		dir = path.Dir(dir)
	}
	return dirs, nil
}

// transfer sends content as an operation: the answer to the request goes into
// opened, what ends it into end; both may be nil. After an error that the guest
// ends it with, end is filled in as well.
func (c *Conn) transfer(ctx context.Context, op wire.Op, args, opened any, content io.Reader, end any) error {
	o, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	defer o.leave()
	if err := o.answer(ctx, opened); err != nil {
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
		result <- o.result(ctx, wire.NewFrameReader(o), end)
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
func (o *operation) result(ctx context.Context, frames *wire.FrameReader, end any) error {
	kind, _, err := frames.Next()
	if err == nil && kind != wire.KindResult {
		err = wire.Violation("frame of kind %d instead of a result", kind)
	}
	if err != nil {
		return o.failed(ctx, err)
	}
	return o.readResult(ctx, frames, end)
}

func (o *operation) readResult(ctx context.Context, frames *wire.FrameReader, end any) error {
	var response wire.Response
	if err := frames.JSON(&response); err != nil {
		return o.failed(ctx, err)
	}
	if response.Error != nil && end != nil && len(response.Result) > 0 {
		if err := wire.Unmarshal(response.Result, end); err != nil {
			return o.conn.violated(err)
		}
	}
	return o.conn.unpack(response, end)
}

// ReadOptions say what OpenFile reads.
type ReadOptions struct {
	User   string // reads; root when empty
	Offset int64
	Length int64 // at most; 0 is to the end
}

// File is a file of a sandbox that is being read.
type File struct {
	op     *operation
	frames *wire.FrameReader
	info   wire.File
	left   int64 // how much may come; negative when that is not known
	err    error // the end
}

// ReadFile opens a regular file inside the sandbox; the caller closes it. ctx
// bounds the opening. What it returns is a *File. Reading ends with io.EOF only
// when the whole file has arrived.
//
// Codes: NotFound, Denied, Invalid when it is no regular file.
func (c *Conn) ReadFile(ctx context.Context, path string) (io.ReadCloser, error) {
	f, err := c.openFile(ctx, wire.Read{Path: wire.Path(path)})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenFile opens a regular file as ReadFile does, or a part of it.
//
// Codes: as ReadFile, and Unsupported by an older guest when there are options.
func (c *Conn) OpenFile(ctx context.Context, path string, o ReadOptions) (*File, error) {
	if o != (ReadOptions{}) {
		if err := c.needFiles(); err != nil {
			return nil, err
		}
	}
	if o.Offset < 0 || o.Length < 0 {
		return nil, fault.InvalidField("offset", "neither offset nor length can be negative")
	}
	return c.openFile(ctx, wire.Read{Path: wire.Path(path), User: o.User, Offset: o.Offset, Length: o.Length})
}

func (c *Conn) openFile(ctx context.Context, args wire.Read) (*File, error) {
	o, err := c.open(ctx, wire.OpRead, args)
	if err != nil {
		return nil, err
	}
	f := &File{op: o, frames: wire.NewFrameReader(o), left: -1}
	if args.Length > 0 {
		f.left = args.Length
	}
	if err := o.answer(ctx, &f.info); err != nil {
		o.leave()
		return nil, err
	}
	if err := checkFile(f.info); err != nil {
		return nil, c.violated(err)
	}
	return f, nil
}

// Size is what the whole file had when it was opened. What is read may be more
// or less.
func (f *File) Size() int64 { return f.info.Size }

// Mode is the permission bits.
func (f *File) Mode() fs.FileMode { return fs.FileMode(f.info.Mode) }

// Modified is when the file was last changed; zero when an older guest does not
// tell.
func (f *File) Modified() time.Time {
	if f.info.Modified == 0 {
		return time.Time{}
	}
	return time.Unix(0, f.info.Modified)
}

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
	kind, n, err := f.frames.Next()
	switch {
	case err != nil:
		return f.op.failed(ctx, err)
	case kind == wire.KindData:
		if f.left >= 0 {
			if f.left -= int64(n); f.left < 0 {
				return f.op.conn.violated(wire.Violation("more of a file than was asked for"))
			}
		}
		return nil
	case kind != wire.KindResult:
		return f.op.conn.violated(wire.Violation("frame of kind %d in a file", kind))
	}
	if err := f.op.readResult(ctx, f.frames, nil); err != nil {
		return err
	}
	return io.EOF
}

// Close ends the reading. It is not an error to close early.
func (f *File) Close() error {
	f.op.leave()
	return nil
}
