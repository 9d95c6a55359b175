package layer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// form is one of the two forms of an archive.
type form int

const (
	neutralForm form = iota
	upperForm
)

// scanner reads an archive and holds it to the rules of a layer: every path
// once, in directories that are directories, links to what came before.
type scanner struct {
	form   form
	limits Limits
	seen   map[string]*Entry // every path so far
	hidden map[string]bool   // deletions whose path the layer has too

	entries  int
	bytes    int64
	metadata int64
}

// scan calls visit for every entry in the order of the archive. A directory
// that has no entry of its own is visited, Implied, before what lies in it;
// when its own entry comes, it is visited once more. Marks are visited as
// Deleted entries; an opaque mark sets Opaque of its directory, which is
// visited with it again.
//
// The content may be read until visit returns. A deletion of a path that the
// layer has as well says only that nothing of it is left below: a directory
// is opaque then, for anything else that is so anyway.
func scan(ctx context.Context, r io.Reader, form form, limits Limits, visit func(e *Entry, content io.Reader) error) error {
	if limits.Entries == 0 {
		limits.Entries = DefaultEntries
	}
	s := &scanner{form: form, limits: limits, seen: make(map[string]*Entry), hidden: make(map[string]bool)}
	end := &endReader{r: r}
	var src io.Reader = end
	if seeker, ok := r.(io.ReadSeeker); ok {
		src = &seekingEnd{endReader: end, seeker: seeker}
	} else {
		end.r = bufio.NewReaderSize(r, 64<<10)
	}
	archive := tar.NewReader(src)
	for {
		if err := ctx.Err(); err != nil {
			return fault.From(err)
		}
		hdr, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return archiveFailure(err)
		}
		if err := s.entry(hdr, &contentReader{ctx: ctx, r: archive}, visit); err != nil {
			return err
		}
	}
	if end.over {
		return fault.New(fault.Invalid, "the layer is no complete tar archive: it has no end")
	}
	if n, err := io.CopyN(io.Discard, end, maxTrailer+1); err != nil && !errors.Is(err, io.EOF) {
		return archiveFailure(err)
	} else if n > maxTrailer {
		return fault.New(fault.Invalid, "the layer goes on after the end of its tar archive")
	}
	return nil
}

// endReader notices the end of what it reads from: an archive has to say
// itself where it ends.
type endReader struct {
	r    io.Reader
	over bool
}

func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n > 0 && errors.Is(err, io.EOF) {
		return n, nil
	}
	e.over = e.over || errors.Is(err, io.EOF)
	return n, err
}

// seekingEnd lets content that nobody reads be skipped.
type seekingEnd struct {
	*endReader
	seeker io.Seeker
}

func (e *seekingEnd) Seek(offset int64, whence int) (int64, error) {
	return e.seeker.Seek(offset, whence)
}

// contentReader ends with the context, and says what is wrong with the
// archive in our words.
type contentReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contentReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = archiveFailure(err)
	}
	return n, err
}

func (s *scanner) entry(hdr *tar.Header, content io.Reader, visit func(*Entry, io.Reader) error) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil // comments of the program that made the archive
	}
	if s.entries++; s.entries > s.limits.Entries {
		return fault.New(fault.Exhausted, "the layer has more than %d entries", s.limits.Entries)
	}
	if err := refuseSparse(hdr); err != nil {
		return err
	}
	s.metadata += int64(len(hdr.Name) + len(hdr.Linkname))
	for k, v := range hdr.PAXRecords {
		s.metadata += int64(len(k) + len(v))
	}
	if s.metadata > maxMetadata {
		return fault.New(fault.Exhausted, "the names and attributes of the layer are of more than %d bytes", maxMetadata)
	}
	p, err := cleanName(hdr.Name)
	if err != nil {
		return err
	}
	kind := noMark
	if s.form == neutralForm {
		if p, kind, err = marked(p); err != nil {
			return err
		}
	} else if hdr.Typeflag == tar.TypeChar && hdr.Devmajor == 0 && hdr.Devminor == 0 {
		kind = deletion
	} else if hdr.Typeflag == tar.TypeLink {
		if target, err := cleanName(hdr.Linkname); err == nil && s.seen[target] != nil && s.seen[target].Deleted {
			kind = deletion
		}
	}
	if kind != noMark && s.form == neutralForm && hdr.Typeflag != tar.TypeReg {
		return refuse(hdr.Name, "is a mark of deletion, but no file")
	}
	if err := s.parents(p, hdr.Name, visit); err != nil {
		return err
	}
	switch kind {
	case deletion:
		return s.deleted(p, hdr.Name, visit)
	case opacity:
		dir := s.seen[p]
		if dir == nil {
			dir = &Entry{Path: p, Type: Dir, Mode: 0o755, Implied: true}
		}
		if dir.Type != Dir {
			return refuse(hdr.Name, "marks a directory that is a file")
		}
		s.seen[p], dir.Opaque = dir, true
		return visit(dir, nil)
	}
	e, err := s.file(p, hdr)
	if err != nil || e == nil {
		return err
	}
	return visit(e, content)
}

// parents sees to it that a path lies in directories of the layer.
func (s *scanner) parents(p, name string, visit func(*Entry, io.Reader) error) error {
	for i := 0; i < len(p); i++ {
		if p[i] != '/' || p == "/" {
			continue
		}
		dir := p[:max(i, 1)]
		switch d := s.seen[dir]; {
		case d == nil:
			d = &Entry{Path: dir, Type: Dir, Mode: 0o755, Implied: true}
			s.seen[dir] = d
			if err := visit(d, nil); err != nil {
				return err
			}
		case d.Deleted && s.form == neutralForm:
			// Deleted and made anew: its own entry may yet come.
			d = &Entry{Path: dir, Type: Dir, Mode: 0o755, Implied: true, Opaque: true}
			s.seen[dir], s.hidden[dir] = d, true
			if err := visit(d, nil); err != nil {
				return err
			}
		case d.Type != Dir:
			return refuse(name, "lies in %.200q, which is no directory", dir)
		}
	}
	return nil
}

func (s *scanner) deleted(p, name string, visit func(*Entry, io.Reader) error) error {
	if p == "/" || s.hidden[p] {
		return refuse(name, "is there twice")
	}
	was := s.seen[p]
	switch {
	case was == nil:
		e := &Entry{Path: p, Deleted: true}
		s.seen[p] = e
		return visit(e, nil)
	case was.Deleted || s.form == upperForm:
		return refuse(name, "is there twice")
	}
	s.hidden[p] = true
	if was.Type != Dir || was.Opaque {
		return nil
	}
	was.Opaque = true
	return visit(was, nil)
}

// file turns a header into an entry, nil for what is no part of a layer.
func (s *scanner) file(p string, hdr *tar.Header) (*Entry, error) {
	if hdr.Uid < 0 || hdr.Gid < 0 || hdr.Uid >= math.MaxUint32 || hdr.Gid >= math.MaxUint32 {
		return nil, refuse(hdr.Name, "has the owner %d:%d", hdr.Uid, hdr.Gid)
	}
	e := &Entry{Path: p, Mode: uint32(hdr.Mode) & 0o7777, UID: hdr.Uid, GID: hdr.Gid, ModTime: hdr.ModTime}
	was := s.seen[p]
	if was != nil && !was.Deleted && (!was.Implied || hdr.Typeflag != tar.TypeDir) ||
		was != nil && was.Deleted && s.form == upperForm {
		return nil, refuse(hdr.Name, "is there twice")
	}
	if p == "/" && hdr.Typeflag != tar.TypeDir {
		return nil, refuse(hdr.Name, "is the root, but no directory")
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		e.Type = Dir
	case tar.TypeReg:
		e.Type, e.Size = File, hdr.Size
		if s.bytes += hdr.Size; hdr.Size < 0 || s.bytes < 0 || s.limits.Bytes > 0 && s.bytes > s.limits.Bytes {
			return nil, fault.New(fault.Exhausted, "the layer's files are of more than %d bytes", s.limits.Bytes)
		}
	case tar.TypeSymlink:
		e.Type, e.Mode, e.Target = Link, 0o777, hdr.Linkname
		if e.Target == "" || len(e.Target) > maxPath || strings.ContainsRune(e.Target, 0) {
			return nil, refuse(hdr.Name, "is a symbolic link with a target of %d bytes", len(e.Target))
		}
	case tar.TypeFifo:
		e.Type = Other
	case tar.TypeLink:
		if err := s.hardLink(e, hdr); err != nil {
			return nil, err
		}
	case tar.TypeChar, tar.TypeBlock:
		if s.form == upperForm {
			return nil, nil
		}
		return nil, refuse(hdr.Name, "is a device node")
	default:
		return nil, refuse(hdr.Name, "is of a kind (%q) that no layer has", hdr.Typeflag)
	}
	if e.Type != Link && e.Same == "" {
		if err := e.takeRecords(hdr.PAXRecords, s.form); err != nil {
			return nil, err
		}
	}
	if was != nil {
		if was.Deleted {
			s.hidden[p] = true
		}
		e.Opaque = e.Opaque || e.Type == Dir && (was.Opaque || was.Deleted)
	}
	s.seen[p] = e
	return e, nil
}

// hardLink makes e the file that an earlier path has.
func (s *scanner) hardLink(e *Entry, hdr *tar.Header) error {
	target, err := cleanName(hdr.Linkname)
	if err != nil {
		return err
	}
	old := s.seen[target]
	if old == nil || old.Deleted || old.Type == Dir {
		return refuse(hdr.Name, "is a hard link to %.200q, which is no file that came before it", hdr.Linkname)
	}
	p := e.Path
	*e = *old
	e.Path = p
	if e.Same == "" {
		e.Same = target
	}
	return nil
}

// refuseSparse: a few bytes may claim to be the holes of a file without end.
// No layer has them but by somebody's intention.
func refuseSparse(hdr *tar.Header) error {
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuse(hdr.Name, "is kept as a sparse file")
		}
	}
	if hdr.Typeflag == tar.TypeGNUSparse {
		return refuse(hdr.Name, "is kept as a sparse file")
	}
	return nil
}
