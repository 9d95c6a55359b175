package layer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// writer writes archives in the one way of this package.
type writer struct {
	ctx  context.Context
	tar  *tar.Writer
	form form
	max  int64 // of the sizes of all files; 0 is no bound
	sum  int64
	buf  []byte
}

func newWriter(ctx context.Context, w io.Writer, form form, maxBytes int64) *writer {
	return &writer{ctx: ctx, tar: tar.NewWriter(w), form: form, max: maxBytes, buf: make([]byte, 256<<10)}
}

func (w *writer) close() error { return failure(w.tar.Close(), "write the layer") }

// name is what a path is called in the form.
func (w *writer) name(p string, dir bool) string {
	if w.form == upperForm && p != "/" {
		return "./" + tarName(p, dir)
	}
	return tarName(p, dir)
}

// entry writes an entry and, for a file that is no hard link, exactly its size
// of content.
func (w *writer) entry(e *Entry, content io.Reader) error {
	if err := w.ctx.Err(); err != nil {
		return fault.From(err)
	}
	if e.Deleted {
		return w.deletion(e.Path)
	}
	if w.form == neutralForm {
		if err := canCarry(e.Path); err != nil {
			return err
		}
	}
	h := &tar.Header{
		Format: tar.FormatPAX, Name: w.name(e.Path, e.Type == Dir), Mode: int64(e.Mode),
		Uid: e.UID, Gid: e.GID, ModTime: e.ModTime, PAXRecords: e.records(w.form),
	}
	if h.ModTime.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	switch {
	case e.Same != "":
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, w.name(e.Same, false), nil
	case e.Type == Dir:
		h.Typeflag = tar.TypeDir
	case e.Type == Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case e.Type == Other:
		h.Typeflag = tar.TypeFifo
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
		if w.sum += e.Size; w.sum < 0 || w.max > 0 && w.sum > w.max {
			return fault.New(fault.Exhausted, "the layer's files are of more than %d bytes", w.max)
		}
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return failure(err, "write the layer")
	}
	if h.Typeflag == tar.TypeReg {
		return w.content(e, content)
	}
	if w.form == neutralForm && e.Opaque && e.Type == Dir {
		return w.marker(opaqueName(e.Path))
	}
	return nil
}

func (w *writer) content(e *Entry, content io.Reader) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{w.tar}, &contentReader{ctx: w.ctx, r: io.LimitReader(content, e.Size)}, w.buf)
	if err != nil {
		return failure(err, "write the layer")
	}
	if n != e.Size {
		return fault.Wrap(fmt.Errorf("%d of %d bytes", n, e.Size), fault.Internal, "the layer's file %.200q has changed while it was read", e.Path)
	}
	return nil
}

// deletion writes the mark of a deletion. It says nothing but its name.
func (w *writer) deletion(p string) error {
	if w.form == neutralForm {
		if err := canCarry(p); err != nil {
			return err
		}
		return w.marker(deletionName(p))
	}
	h := &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeChar, Name: w.name(p, false), ModTime: time.Unix(0, 0)}
	return failure(w.tar.WriteHeader(h), "write the layer")
}

func (w *writer) marker(name string) error {
	h := &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, ModTime: time.Unix(0, 0)}
	return failure(w.tar.WriteHeader(h), "write the layer")
}

// order is by what the neutral form calls the children of one directory.
func order(base string, deleted bool) string {
	if deleted {
		return whiteoutPrefix + base
	}
	return base
}
