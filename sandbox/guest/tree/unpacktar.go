package tree

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"io/fs"

	"github.com/sandgate/sandgate/sandbox/fault"
)

var errRatio = fault.New(fault.Exhausted, "the archive unpacks to more than %d times its size; that is no archive but a bomb", maxRatio)

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// guarded is what a compressed archive unpacks to, as long as that is no bomb.
type guarded struct {
	r      io.Reader
	packed *counted
	n      int64
}

func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.r.Read(b)
	if g.n += int64(n); g.n > freeBytes && g.n-freeBytes > maxRatio*g.packed.n {
		return 0, errRatio
	}
	return n, err
}

// limited is the content of an entry, cut at the size that was announced.
type limited struct {
	ctx  context.Context
	r    io.Reader
	left int64
}

func (l *limited) Read(b []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.left == 0 {
		return 0, io.EOF
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

func (u *unpacker) gzip(r io.Reader) error {
	packed := &counted{r: r}
	gz, err := gzip.NewReader(bufio.NewReaderSize(packed, 64<<10))
	if err != nil {
		return u.explain("", err)
	}
	stream := &guarded{r: gz, packed: packed}
	if err := u.tar(stream); err != nil {
		return err
	}
	// What follows the end of the tar is read for the checksum behind it.
	if _, err := copyAll(io.Discard, stream); err != nil {
		return u.explain("", err)
	}
	return nil
}

func (u *unpacker) tar(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return u.explain("", err)
		}
		e := entry{
			name: h.Name, mode: fs.FileMode(h.Mode & 0o777), modified: h.ModTime, size: h.Size,
			target: h.Linkname, content: t,
		}
		if h.Mode&0o1000 != 0 {
			e.mode |= fs.ModeSticky
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		case tar.TypeDir:
			e.kind = fs.ModeDir
		case tar.TypeSymlink:
			e.kind = fs.ModeSymlink
		case tar.TypeLink:
			e.hard = true
		case tar.TypeXGlobalHeader:
			continue
		default:
			e.kind = fs.ModeIrregular
		}
		if err := u.unpack(e); err != nil {
			return err
		}
	}
}
