package layer

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// node is one path of an archive that can be read in any order.
type node struct {
	*Entry
	children map[string]*node
	src      io.ReadSeeker
	offset   int64 // of the content in src
}

// index reads the headers of an archive into a tree. The root is there even in
// an empty archive.
func index(ctx context.Context, r io.ReadSeeker, form form) (*node, error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, failure(err, "read the layer")
	}
	root := &node{Entry: &Entry{Path: "/", Type: Dir, Mode: 0o755, Implied: true}, children: make(map[string]*node)}
	at := map[string]*node{"/": root}
	err := scan(ctx, r, form, Limits{}, func(e *Entry, content io.Reader) error {
		n := at[e.Path]
		if n == nil {
			n = &node{children: make(map[string]*node)}
			at[e.Path] = n
			at[path.Dir(e.Path)].children[path.Base(e.Path)] = n
		}
		n.Entry = e
		if e.Type != File || e.Same != "" {
			return nil
		}
		n.src = r
		var err error
		n.offset, err = r.Seek(0, io.SeekCurrent)
		return err
	})
	if err != nil {
		return nil, failure(err, "read the layer")
	}
	for p, n := range at {
		if n.Same != "" {
			n.src, n.offset = at[n.Same].src, at[n.Same].offset
		}
		if p != n.Path {
			return nil, fault.New(fault.Internal, "the index of the layer is wrong at %.200q", p)
		}
	}
	return root, nil
}

// emit writes a tree in the order of the neutral form. The first path of a
// file in this order gets its content, whichever it was in the archive.
func (w *writer) emit(root *node, o Options) error {
	return w.emitNode(root, o, make(map[source]string), false)
}

// source tells files apart: which content of which archive. What has no
// content is told apart by its first path.
type source struct {
	src    io.ReadSeeker
	offset int64
	path   string
}

// emitNode leaves deletions out where nothing of the layers below can be seen:
// they say nothing, and overlayfs would list them.
func (w *writer) emitNode(n *node, o Options, first map[source]string, hidden bool) error {
	e := *n.Entry
	if e.Type != Dir && !e.Deleted {
		key := source{src: n.src, offset: n.offset}
		if n.Type != File {
			key.path = n.Path
			if n.Same != "" {
				key.path = n.Same
			}
		}
		if e.Same = first[key]; e.Same == "" {
			first[key] = n.Path
		}
	}
	var content io.Reader
	if e.Type == File && e.Same == "" {
		if _, err := n.src.Seek(n.offset, io.SeekStart); err != nil {
			return failure(err, "read the layer")
		}
		content = n.src
	}
	if err := w.entry(&e, content); err != nil {
		return err
	}
	hidden = hidden || e.Opaque
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(order(a, n.children[a].Deleted), order(b, n.children[b].Deleted))
	})
	for _, name := range names {
		child := n.children[name]
		if o.skip(child.Path) || hidden && child.Deleted {
			continue
		}
		if err := w.emitNode(child, o, first, hidden); err != nil {
			return err
		}
	}
	return nil
}
