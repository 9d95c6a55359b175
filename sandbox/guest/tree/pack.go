package tree

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Format is the form of an archive.
type Format string

// The formats.
const (
	Tar   Format = "tar"
	TarGz Format = "tar.gz"
	Zip   Format = "zip"
)

// Valid reports whether f is one of the formats.
func (f Format) Valid() bool { return f == Tar || f == TarGz || f == Zip }

// Totals are what was packed or unpacked.
type Totals struct {
	Files int64 // regular files and hard links
	Dirs  int64
	Links int64 // symbolic
	Bytes int64 // content of files
	// Skipped counts what is none of these, or could not be read; First is
	// the path of the first of them.
	Skipped int64
	First   string
}

func (t *Totals) skip(path string) {
	if t.Skipped++; t.Skipped == 1 {
		t.First = path
	}
}

// gzipLevel is the fastest: a level more costs a third of the speed and gives
// a few hundredths of the size.
const gzipLevel = gzip.BestSpeed

// packer writes one form of archive.
type packer interface {
	dir(n *Node) error
	link(n *Node, target string) error
	// file writes a file whose size is that of the node, and its content.
	// What it returns of an error of content is marked as such.
	file(n *Node, content io.Reader) error
	Close() error
}

// Pack writes an archive of what is below a directory, or of one file, to w.
// Links are packed as links. Sockets, pipes and devices are skipped and
// counted, as is what cannot be read. An error is one of w or of the path
// itself; the archive is not whole then.
func Pack(ctx context.Context, name string, f Format, w io.Writer) (Totals, error) {
	var totals Totals
	dir, file, err := openRoot(name)
	if err != nil {
		return totals, err
	}
	p := newPacker(f, w)
	if dir == nil {
		defer file.Close()
		n := &Node{Path: path.Base(name), Name: path.Base(name)}
		if err := unix.Fstat(int(file), &n.Stat); err != nil {
			return totals, err
		}
		err = totals.file(ctx, p, n, file)
	} else {
		err = Walk(ctx, dir, 0, func(n *Node) (bool, error) { return totals.pack(ctx, p, n) },
			func(path string, _ error) { totals.skip(path) })
	}
	if err != nil {
		return totals, err
	}
	return totals, p.Close()
}

// openRoot opens the directory or the file that is to be packed.
func openRoot(name string) (*os.File, rawFile, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return nil, -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		dir, err := OpenDir(name)
		if err == nil && Kernel(int(dir.Fd())) {
			dir.Close()
			return nil, -1, fault.InvalidField("path", "%s is where the kernel shows itself; there are no files to pack", wire.Printable(name, 256))
		}
		return dir, -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, -1, fault.InvalidField("path", "%s is neither a directory nor a regular file", wire.Printable(name, 256))
	}
	n := Node{Name: name, dir: unix.AT_FDCWD}
	fd, err := retry(func() (int, error) {
		return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	})
	if err == nil {
		if err = unix.Fstat(fd, &n.Stat); err == nil && !n.Regular() {
			err = unix.EINVAL
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return nil, rawFile(fd), nil
}

func newPacker(f Format, w io.Writer) packer {
	switch f {
	case Zip:
		return newZipPacker(w)
	case TarGz:
		gz, _ := gzip.NewWriterLevel(w, gzipLevel) // the level is good
		return newTarPacker(gz, gz)
	}
	return newTarPacker(w, nil)
}

// pack packs one entry.
func (t *Totals) pack(ctx context.Context, p packer, n *Node) (bool, error) {
	switch {
	case n.Dir():
		t.Dirs++
		return true, p.dir(n)
	case n.Link():
		target, err := n.Target()
		if err != nil {
			t.skip(n.Path)
			return false, nil
		}
		t.Links++
		return false, p.link(n, target)
	case n.Regular():
		f, err := n.open()
		if err != nil {
			t.skip(n.Path)
			return false, nil
		}
		defer f.Close()
		return false, t.file(ctx, p, n, f)
	}
	t.skip(n.Path)
	return false, nil
}

// file packs the content of a file: as many bytes as it had when it was opened.
// What is missing in the end, because it was cut or cannot be read, is zeros,
// and the file counts as skipped.
func (t *Totals) file(ctx context.Context, p packer, n *Node, f rawFile) error {
	c := &content{ctx: ctx, r: f, left: n.Stat.Size}
	if err := p.file(n, c); err != nil {
		return err
	}
	t.Files++
	t.Bytes += n.Stat.Size
	if c.short {
		t.skip(n.Path)
	}
	return nil
}

// content is the bytes of a file that is being packed, exactly as many as were
// announced.
type content struct {
	ctx   context.Context
	r     io.Reader
	left  int64
	short bool
}

func (c *content) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	b = b[:min(int64(len(b)), c.left)]
	n := 0
	if !c.short {
		var err error
		if n, err = c.r.Read(b); err != nil {
			c.short = n == 0
		}
	}
	if c.short {
		clear(b)
		n = len(b)
	}
	c.left -= int64(n)
	return n, nil
}

// copyAll copies with a pooled buffer.
func copyAll(w io.Writer, r io.Reader) (int64, error) {
	buf := wire.Buffer(wire.MaxPayload)
	defer buf.Release()
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf.Payload())
}

func modTime(st *unix.Stat_t) time.Time {
	sec, nsec := st.Mtim.Unix()
	return time.Unix(sec, nsec)
}

// errMany means that a zip has more entries than its directory, which is kept
// in memory until the end, may have.
var errMany = fault.New(fault.Exhausted, "more than %d entries do not go into a zip here; use tar.gz", maxZipEntries)
