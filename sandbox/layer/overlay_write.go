package layer

import (
	"context"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// WriteOverlay writes a directory in the overlay form to w in the neutral one.
// The same content gives the same bytes. Nobody may write to the directory
// meanwhile; what is found to change fails.
//
// Files are written with all their zeros, as a map of holes would depend on
// how the disk happens to keep them; Options.MaxBytes is there for files that
// claim to be enormous.
func WriteOverlay(ctx context.Context, dir string, w io.Writer, o Options) error {
	root, err := openDirectory(dir)
	if err != nil {
		return failure(err, "read the layer")
	}
	defer root.Close()
	x := &overlayWriter{writer: newWriter(ctx, w, neutralForm, o.MaxBytes), o: o, links: make(map[inode]string)}
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return failure(err, "read the layer")
	}
	if err := x.dir(root, "/", &st, place{}); err != nil {
		return failure(err, "read the layer")
	}
	return x.close()
}

type overlayWriter struct {
	*writer
	o     Options
	links map[inode]string // first path of every file that has several
}

// place is where in the tree the writer is.
type place struct {
	depth  int
	hidden bool // nothing of the layers below can be seen: deletions say nothing
}

// dir writes an open directory and what is in it.
func (x *overlayWriter) dir(d *os.File, p string, st *unix.Stat_t, at place) error {
	if at.depth > maxDepth {
		return fault.New(fault.Invalid, "directories are nested more than %d deep", maxDepth)
	}
	e, err := describe(p, nil, st, d)
	if err != nil {
		return err
	}
	if err := x.entry(e, nil); err != nil {
		return err
	}
	at.hidden = at.hidden || e.Opaque
	all, err := children(d)
	if err != nil {
		return err
	}
	for i := range all {
		full := path.Join(p, all[i].name)
		if x.o.skip(full) {
			continue
		}
		if err := x.child(d, full, &all[i], at); err != nil {
			return err
		}
	}
	return nil
}

func (x *overlayWriter) child(d *os.File, p string, c *child, at place) error {
	st := &c.st
	if isWhiteout(st) {
		if at.hidden {
			return nil
		}
		return x.deletion(p)
	}
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
		return nil
	}
	var f *os.File
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		var err error
		if f, err = openIn(d, c.name, st); err != nil {
			return err
		}
		defer f.Close()
	}
	if kind == unix.S_IFDIR {
		return x.dir(f, p, st, place{at.depth + 1, at.hidden})
	}
	e, err := describe(p, d, st, f)
	if err != nil {
		return err
	}
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if e.Same = x.links[key]; e.Same == "" {
			x.links[key] = p
		}
	}
	if f == nil || e.Same != "" {
		return x.entry(e, nil)
	}
	return x.entry(e, contentOf(f, st))
}
