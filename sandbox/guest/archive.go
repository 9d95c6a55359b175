package guest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// Format is the form of an archive.
type Format = tree.Format

// The formats.
const (
	Tar   = tree.Tar
	TarGz = tree.TarGz
	Zip   = tree.Zip
)

// Archived is what an archive took in, or was unpacked of one.
type Archived = tree.Totals

// Download writes an archive of what is in a directory of the sandbox, or of
// one file, to w: modes, times and links as they are. Sockets, pipes, devices
// and what cannot be read are skipped and counted; the mounts of /proc, /sys
// and /dev are left out. The archive is made inside the sandbox; what arrives
// is bytes that nothing here looks into. After an error it is not whole.
//
// Codes: NotFound, Denied, Invalid for what is neither directory nor file,
// Exhausted when there are too many files for a zip. An error of w is returned
// as it is.
func (c *Conn) Download(ctx context.Context, path string, f Format, user string, w io.Writer) (Archived, error) {
	if err := c.needFiles(); err != nil {
		return Archived{}, err
	}
	o, err := c.open(ctx, wire.OpPack, wire.Pack{Path: wire.Path(path), User: user, Format: string(f)})
	if err != nil {
		return Archived{}, err
	}
	defer o.leave()
	if err := o.answer(ctx, nil); err != nil {
		return Archived{}, err
	}
	stop := context.AfterFunc(ctx, func() { o.SetReadDeadline(longAgo) })
	defer stop()
	frames := wire.NewFrameReader(o)
	for {
		kind, _, err := frames.Next()
		if err != nil {
			return Archived{}, o.failed(ctx, err)
		}
		switch kind {
		case wire.KindData:
			if err := o.copyTo(ctx, w, frames); err != nil {
				return Archived{}, err
			}
		case wire.KindResult:
			var end wire.Archived
			err := o.readResult(ctx, frames, &end)
			totals, bad := checkArchived(end)
			if bad != nil {
				return Archived{}, c.violated(bad)
			}
			return totals, err
		default:
			return Archived{}, c.violated(wire.Violation("frame of kind %d in an archive", kind))
		}
	}
}

// copyTo writes the payload of a frame to w.
func (o *operation) copyTo(ctx context.Context, w io.Writer, frame *wire.FrameReader) error {
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if err != nil {
			return o.failed(ctx, err)
		}
		if _, err := w.Write(buf.Payload()[:n]); err != nil {
			return err
		}
	}
	return nil
}

// UploadOptions say how Upload unpacks.
type UploadOptions struct {
	Format     Format // empty: told by the first bytes
	User       string // unpacks; root when empty
	MaxBytes   int64  // of what it unpacks to; 0, and at most: what the sandbox's disk has free
	MaxEntries int64  // 0 is a million
}

// Upload unpacks an archive into a directory of the sandbox, which is made when
// it is missing. It is unpacked inside the sandbox, as it arrives; a zip when
// all of it has.
//
// An entry that is absolute, contains "..", or leads through a link out of the
// directory ends it with an Invalid error that names it; one beyond the bounds,
// and a bomb, with Exhausted. Archived is what had been unpacked until then,
// also beside an error. An error of r is returned as it is.
func (c *Conn) Upload(ctx context.Context, path string, o UploadOptions, r io.Reader) (Archived, error) {
	if err := c.needFiles(); err != nil {
		return Archived{}, err
	}
	if o.Format == "" {
		head := bufio.NewReaderSize(r, 64<<10)
		var err error
		if o.Format, err = DetectFormat(head); err != nil {
			return Archived{}, err
		}
		r = head
	}
	args := wire.Unpack{Path: wire.Path(path), User: o.User, Format: string(o.Format), MaxBytes: o.MaxBytes, MaxEntries: o.MaxEntries}
	var end wire.Archived
	err := c.transfer(ctx, wire.OpUnpack, args, nil, r, &end)
	totals, bad := checkArchived(end)
	if bad != nil {
		return Archived{}, c.violated(bad)
	}
	return totals, err
}

// DetectFormat tells the format of an archive by its first bytes, which it does
// not consume.
//
// Codes: Invalid when it is none of the formats.
func DetectFormat(r *bufio.Reader) (Format, error) {
	const magicAt, block = 257, 512
	head, err := r.Peek(block)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	has := func(at int, magic string) bool {
		return len(head) >= at+len(magic) && string(head[at:at+len(magic)]) == magic
	}
	switch {
	case has(0, "\x1f\x8b"):
		return TarGz, nil
	case has(0, "PK\x03\x04"), has(0, "PK\x05\x06"):
		return Zip, nil
	case has(magicAt, "ustar"):
		return Tar, nil
	}
	return "", fault.InvalidField("archive", "is neither tar, tar.gz nor zip")
}

// CopyIn copies a directory of this host, or one file of it, into a directory
// of the sandbox. Links are copied as links.
func (c *Conn) CopyIn(ctx context.Context, from, path string, o UploadOptions) (Archived, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := tree.Pack(ctx, from, tree.Tar, w)
		w.CloseWithError(err) // nil is the end
		packed <- err
	}()
	o.Format = Tar
	totals, err := c.Upload(ctx, path, o, r)
	cancel()
	r.Close()
	if perr := <-packed; err == nil {
		err = perr
	}
	return totals, err
}

// CopyOut copies a directory of the sandbox, or one file of it, into a
// directory of this host (tree.OpenDir), within limits. It writes nothing outside of to,
// whatever the sandbox sends.
func (c *Conn) CopyOut(ctx context.Context, path, user string, to *os.File, limits tree.Limits) (Archived, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Download(ctx, path, Tar, user, w)
		w.CloseWithError(err)
		sent <- err
	}()
	totals, err := tree.Unpack(ctx, to, Tar, r, limits, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // what a tar is padded with
	}
	cancel()
	r.Close()
	derr := <-sent
	if source, ok := errors.AsType[*tree.SourceError](err); ok {
		err = source.Err
	}
	if err == nil {
		err = derr
	}
	return totals, err
}

// checkArchived checks what a guest says of an archive.
func checkArchived(a wire.Archived) (Archived, error) {
	for _, n := range []int64{a.Files, a.Dirs, a.Links, a.Bytes, a.Skipped} {
		if n < 0 || n > wire.MaxFileSize {
			return Archived{}, wire.Violation("an archive with %d files", n)
		}
	}
	return Archived{Files: a.Files, Dirs: a.Dirs, Links: a.Links, Bytes: a.Bytes, Skipped: a.Skipped, First: wire.Printable(a.First, 256)}, nil
}
