package layer

import (
	"context"
	"io"
)

// Merge writes one layer that does what the given ones do over each other, the
// topmost first. All are archives in the neutral form that this package has
// written. What the layers delete stays deleted in what lies below them all.
func Merge(ctx context.Context, w io.Writer, layers ...io.ReadSeeker) error {
	return mergeAs(ctx, w, neutralForm, layers)
}

// MergeToUpper is Merge into the upper form.
func MergeToUpper(ctx context.Context, w io.Writer, layers ...io.ReadSeeker) error {
	return mergeAs(ctx, w, upperForm, layers)
}

func mergeAs(ctx context.Context, w io.Writer, form form, layers []io.ReadSeeker) error {
	root, err := mergeTrees(ctx, layers)
	if err != nil {
		return err
	}
	out := newWriter(ctx, w, form, 0)
	if err := out.emit(root, Options{}); err != nil {
		return err
	}
	return out.close()
}

func mergeTrees(ctx context.Context, layers []io.ReadSeeker) (*node, error) {
	root := &node{Entry: &Entry{Path: "/", Type: Dir, Mode: 0o755, Implied: true}, children: make(map[string]*node)}
	for _, l := range layers {
		lower, err := index(ctx, l, neutralForm)
		if err != nil {
			return nil, err
		}
		root.cover(lower)
	}
	return root, nil
}

// cover makes a directory what it looks like when it lies over another entry
// of the same path.
func (n *node) cover(lower *node) {
	if n.Type != Dir || n.Opaque {
		return
	}
	if lower.Type != Dir { // a file, or the mark of a deletion
		n.Opaque = true
		return
	}
	if n.Implied {
		n.Entry = lower.Entry
	} else {
		n.Opaque = lower.Opaque
	}
	for name, below := range lower.children {
		if above := n.children[name]; above != nil {
			above.cover(below)
		} else {
			n.children[name] = below
		}
	}
}

// Flatten is Merge for layers under which nothing lies: no mark is left, and
// what is there is all there is.
func Flatten(ctx context.Context, w io.Writer, layers ...io.ReadSeeker) error {
	root, err := mergeTrees(ctx, layers)
	if err != nil {
		return err
	}
	root.unmark()
	out := newWriter(ctx, w, neutralForm, 0)
	if err := out.emit(root, Options{}); err != nil {
		return err
	}
	return out.close()
}

// unmark takes the marks of what lies below away.
func (n *node) unmark() {
	n.Opaque = false
	for name, child := range n.children {
		if child.Deleted {
			delete(n.children, name)
			continue
		}
		child.unmark()
	}
}
