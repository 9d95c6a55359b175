package tree

import (
	"archive/tar"
	"io"
	"time"
	"unicode/utf8"
)

// maxHardLinks bounds how many files with more than one name are remembered.
// Those beyond it are packed once for each name.
const maxHardLinks = 50_000

type inode struct{ dev, ino uint64 }

type tarPacker struct {
	*tar.Writer
	under io.Closer // may be nil
	seen  map[inode]string
}

func newTarPacker(w io.Writer, under io.Closer) *tarPacker {
	return &tarPacker{Writer: tar.NewWriter(w), under: under, seen: map[inode]string{}}
}

func (p *tarPacker) header(n *Node, kind byte, target string) *tar.Header {
	h := &tar.Header{
		Typeflag: kind, Name: n.Path, Linkname: target, Mode: int64(n.Stat.Mode & 07777),
		Uid: int(n.Stat.Uid), Gid: int(n.Stat.Gid), ModTime: modTime(&n.Stat), Format: tar.FormatPAX,
	}
	if kind == tar.TypeReg {
		h.Size = n.Stat.Size
	}
	// The records of PAX are UTF-8 by definition; GNU's form carries bytes,
	// and no parts of a second.
	if !utf8.ValidString(n.Path) || !utf8.ValidString(target) {
		h.Format = tar.FormatGNU
		h.ModTime = h.ModTime.Truncate(time.Second)
	}
	return h
}

func (p *tarPacker) dir(n *Node) error {
	h := p.header(n, tar.TypeDir, "")
	h.Name += "/"
	return p.WriteHeader(h)
}

func (p *tarPacker) link(n *Node, target string) error {
	return p.WriteHeader(p.header(n, tar.TypeSymlink, target))
}

func (p *tarPacker) file(n *Node, content io.Reader) error {
	if n.Stat.Nlink > 1 {
		id := inode{n.Stat.Dev, n.Stat.Ino}
		if first, ok := p.seen[id]; ok {
			n.Stat.Size = 0
			return p.WriteHeader(p.header(n, tar.TypeLink, first))
		}
		if len(p.seen) < maxHardLinks {
			p.seen[id] = n.Path
		}
	}
	if err := p.WriteHeader(p.header(n, tar.TypeReg, "")); err != nil {
		return err
	}
	_, err := copyAll(p.Writer, content)
	return err
}

func (p *tarPacker) Close() error {
	if err := p.Writer.Close(); err != nil || p.under == nil {
		return err
	}
	return p.under.Close()
}
