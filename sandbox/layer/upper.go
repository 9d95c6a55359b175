package layer

import (
	"context"
	"io"
	"path"
	"slices"
)

// FromUpper turns an archive in the upper form into the neutral one. Device
// nodes are left out, and of gVisor's marks only what they mean is kept.
func FromUpper(ctx context.Context, r io.ReadSeeker, w io.Writer, o Options) error {
	root, err := index(ctx, r, upperForm)
	if err != nil {
		return err
	}
	out := newWriter(ctx, w, neutralForm, o.MaxBytes)
	if err := out.emit(root, o); err != nil {
		return err
	}
	return out.close()
}

// ToUpper turns an archive in the neutral form, which may come from anywhere,
// into the upper one as it reads it. Directories come last: only at the end is
// it known how they are.
func ToUpper(ctx context.Context, r io.Reader, w io.Writer, l Limits) error {
	out := newWriter(ctx, w, upperForm, 0)
	late := map[string]*Entry{"/": {Path: "/", Type: Dir, Mode: 0o755}}
	err := scan(ctx, r, neutralForm, l, func(e *Entry, content io.Reader) error {
		if e.Type == Dir || e.Deleted {
			late[e.Path] = e
			return nil
		}
		delete(late, e.Path) // a deletion that says no more than the file does
		return out.entry(e, content)
	})
	if err != nil {
		return failure(err, "convert the layer")
	}
	paths := deepestFirst(late)
	for _, p := range slices.Backward(paths) {
		if late[p].Deleted && idle(late, p) {
			continue
		}
		if err := out.entry(late[p], nil); err != nil {
			return err
		}
	}
	return out.close()
}

// idle reports whether nothing of the layers below can be seen where a path
// is, so that to delete it says nothing. Overlayfs would list it.
func idle(dirs map[string]*Entry, p string) bool {
	for p != "/" {
		p = path.Dir(p)
		if dirs[p].Opaque {
			return true
		}
	}
	return false
}
