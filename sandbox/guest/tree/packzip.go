package tree

import (
	"archive/zip"
	"compress/flate"
	"io"
	"io/fs"
	"strings"
)

// maxZipEntries bounds what a zip that is being written keeps in memory.
const maxZipEntries = 100_000

type zipPacker struct {
	*zip.Writer
	entries int
}

func newZipPacker(w io.Writer) *zipPacker {
	z := zip.NewWriter(w)
	// One file is written after the other, so one compressor is enough: each
	// takes a megabyte.
	deflate, _ := flate.NewWriter(io.Discard, gzipLevel) // the level is good
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		deflate.Reset(w)
		return deflate, nil
	})
	return &zipPacker{Writer: z}
}

func (p *zipPacker) create(n *Node, name string, kind fs.FileMode, method uint16) (io.Writer, error) {
	if p.entries++; p.entries > maxZipEntries {
		return nil, errMany
	}
	h := &zip.FileHeader{Name: name, Method: method, Modified: modTime(&n.Stat)}
	h.SetMode(fileMode(n.Stat.Mode) | kind)
	return p.CreateHeader(h)
}

func (p *zipPacker) dir(n *Node) error {
	_, err := p.create(n, n.Path+"/", fs.ModeDir, zip.Store)
	return err
}

func (p *zipPacker) link(n *Node, target string) error {
	w, err := p.create(n, n.Path, fs.ModeSymlink, zip.Store)
	if err == nil {
		_, err = io.Copy(w, strings.NewReader(target))
	}
	return err
}

func (p *zipPacker) file(n *Node, content io.Reader) error {
	method := zip.Deflate
	if n.Stat.Size == 0 {
		method = zip.Store
	}
	w, err := p.create(n, n.Path, 0, method)
	if err == nil {
		_, err = copyAll(w, content)
	}
	return err
}

// fileMode turns the lowest twelve bits of a mode into those of package fs.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, special := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= special
		}
	}
	return m
}
