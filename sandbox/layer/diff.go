package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Source is a layer in the neutral form that can be opened again and again.
// Sources with equal IDs have equal content; an empty ID says nothing.
type Source struct {
	ID   string
	Open func() (io.ReadCloser, error)
}

// Stack is layers over each other, the topmost first.
type Stack []Source

// Base is what lies below a stack, such as the files of a runtime.
type Base interface {
	// Entry is what is at a path; its Digest may be missing.
	Entry(path string) (Entry, bool, error)
	// Names are what a directory holds, in any order; none when it is no
	// directory or not there.
	Names(path string) ([]string, error)
	// Open opens a regular file.
	Open(path string) (io.ReadCloser, error)
}

// Change is one path that differs between two stacks.
type Change struct {
	Path    string
	Kind    Kind
	Why     string // for Changed: "type", "content", "target", "mode", "owner", "attributes"
	Type    Type   // of the newer side, of the older for Removed; so are the rest
	Size    int64
	Mode    uint32
	ModTime time.Time
}

// Kind is what happened to a path.
type Kind string

// The kinds.
const (
	Added   Kind = "added"
	Changed Kind = "changed"
	Removed Kind = "removed"
)

// Diff says how the files of to differ from those of from, both over the same
// base, sorted by path. Times alone are no difference. Without a base, what
// only lies there does not exist.
func Diff(ctx context.Context, from, to Stack, base Base) ([]Change, error) {
	if base == nil {
		base = nothing{}
	}
	d := &differ{ctx: ctx, base: base, read: make(map[string][]Entry)}
	older, err := d.view(from)
	if err != nil {
		return nil, err
	}
	newer, err := d.view(to)
	if err != nil {
		return nil, err
	}
	if err := d.path("/", side{older, true}, side{newer, true}); err != nil {
		return nil, failure(err, "compare the files")
	}
	return d.changes, nil
}

type differ struct {
	ctx     context.Context
	base    Base
	read    map[string][]Entry // layers, by ID
	changes []Change
}

// side is one path on one side: what the stack has there, nil for nothing, and
// whether the base can be seen there.
type side struct {
	node  *node
	below bool
}

// view lays the layers of a stack over each other.
func (d *differ) view(s Stack) (*node, error) {
	root := &node{Entry: &Entry{Path: "/", Type: Dir, Mode: 0o755, Implied: true}, children: make(map[string]*node)}
	for _, source := range s {
		entries, ok := d.read[source.ID]
		if !ok || source.ID == "" {
			r, err := source.Open()
			if err != nil {
				return nil, failure(err, "read the layer")
			}
			entries, err = Entries(d.ctx, r)
			r.Close()
			if err != nil {
				return nil, err
			}
			d.read[source.ID] = entries
		}
		root.cover(treeOf(entries))
	}
	return root, nil
}

// treeOf makes a tree of a list in which every directory comes before what is
// in it.
func treeOf(entries []Entry) *node {
	at := make(map[string]*node, len(entries))
	root := &node{Entry: &Entry{Path: "/", Type: Dir, Mode: 0o755, Implied: true}, children: make(map[string]*node)}
	for i := range entries {
		e := entries[i]
		n := &node{Entry: &e, children: make(map[string]*node)}
		if at[e.Path] = n; e.Path == "/" {
			root = n
		} else {
			at[path.Dir(e.Path)].children[path.Base(e.Path)] = n
		}
	}
	return root
}

// entry is what is at a path on one side, nil for nothing.
func (d *differ) entry(p string, s side) (*Entry, error) {
	if s.node != nil && !s.node.Implied {
		if s.node.Deleted {
			return nil, nil
		}
		return s.node.Entry, nil
	}
	if s.below {
		e, ok, err := d.base.Entry(p)
		if err != nil {
			return nil, err
		}
		if ok && (s.node == nil || e.Type == Dir) {
			return &e, nil
		}
	}
	if s.node == nil {
		return nil, nil
	}
	return s.node.Entry, nil
}

// child is one name of a directory on one side.
func (s side) child(name string) side {
	below := s.below && (s.node == nil || s.node.Type == Dir && !s.node.Opaque)
	if s.node == nil {
		return side{nil, below}
	}
	return side{s.node.children[name], below}
}

// path compares one path and, for directories, all that is in it.
func (d *differ) path(p string, a, b side) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	older, err := d.entry(p, a)
	if err != nil {
		return err
	}
	newer, err := d.entry(p, b)
	if err != nil {
		return err
	}
	if p != "/" {
		if err := d.compare(p, older, newer); err != nil {
			return err
		}
	}
	names := make(map[string]bool)
	var sees [2]bool
	for i, s := range []side{a, b} {
		e := []*Entry{older, newer}[i]
		if e == nil || e.Type != Dir {
			continue
		}
		sees[i] = s.child("").below
		if s.node != nil {
			for name := range s.node.children {
				names[name] = true
			}
		}
	}
	if sees[0] != sees[1] {
		below, err := d.base.Names(p)
		if err != nil {
			return err
		}
		for _, name := range below {
			names[name] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(names), comparePaths) {
		sides := [2]side{a.child(name), b.child(name)}
		for i, e := range []*Entry{older, newer} {
			if e == nil || e.Type != Dir {
				sides[i] = side{}
			}
		}
		if err := d.path(path.Join(p, name), sides[0], sides[1]); err != nil {
			return err
		}
	}
	return nil
}

func (d *differ) compare(p string, older, newer *Entry) error {
	c := Change{Path: p}
	e := newer
	switch {
	case older == nil && newer == nil:
		return nil
	case older == nil:
		c.Kind = Added
	case newer == nil:
		c.Kind, e = Removed, older
	default:
		why, err := d.why(p, older, newer)
		if err != nil || why == "" {
			return err
		}
		c.Kind, c.Why = Changed, why
	}
	c.Type, c.Size, c.Mode, c.ModTime = e.Type, e.Size, e.Mode, e.ModTime
	d.changes = append(d.changes, c)
	return nil
}

// why says what differs first, in the order of what matters most.
func (d *differ) why(p string, older, newer *Entry) (string, error) {
	switch {
	case older.Type != newer.Type:
		return "type", nil
	case older.Size != newer.Size:
		return "content", nil
	case older.Target != newer.Target:
		return "target", nil
	}
	if older.Type == File {
		a, err := d.digest(p, older)
		if err != nil {
			return "", err
		}
		b, err := d.digest(p, newer)
		if err != nil {
			return "", err
		}
		if a != b {
			return "content", nil
		}
	}
	switch {
	case older.Mode != newer.Mode:
		return "mode", nil
	case older.UID != newer.UID || older.GID != newer.GID:
		return "owner", nil
	case !maps.Equal(older.Xattrs, newer.Xattrs):
		return "attributes", nil
	}
	return "", nil
}

// digest is that of an entry, which is of the base when it has none.
func (d *differ) digest(p string, e *Entry) (string, error) {
	if e.Digest != "" {
		return e.Digest, nil
	}
	f, err := d.base.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &contentReader{ctx: d.ctx, r: f}); err != nil {
		return "", err
	}
	e.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return e.Digest, nil
}

// nothing is a base without files.
type nothing struct{}

func (nothing) Entry(string) (Entry, bool, error) { return Entry{}, false, nil }
func (nothing) Names(string) ([]string, error)    { return nil, nil }
func (nothing) Open(p string) (io.ReadCloser, error) {
	return nil, fault.New(fault.NotFound, "there is no file %.200q", p)
}
