package sandbox

import (
	"path"
	"strings"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// view is the files of a point: layers over the files of a runtime. It is read
// path by path, so that comparing two points on the same base need not look at
// what they share.
type view struct {
	layers []*layerIndex // the topmost first
	base   *baseFiles
}

// layerIndex is what one layer holds.
type layerIndex struct {
	id       string
	entries  map[string]*layer.Entry
	children map[string][]string // names in a directory
}

func indexLayer(id string, list []layer.Entry) *layerIndex {
	x := &layerIndex{id: id, entries: make(map[string]*layer.Entry, len(list)), children: make(map[string][]string)}
	for i := range list {
		e := &list[i]
		x.entries[e.Path] = e
		if e.Path != "/" {
			dir := path.Dir(e.Path)
			x.children[dir] = append(x.children[dir], path.Base(e.Path))
		}
	}
	for _, e := range x.entries {
		if first := x.entries[e.Same]; e.Same != "" && first != nil {
			e.Digest, e.Size = first.Digest, first.Size
		}
	}
	return x
}

// hides reports whether the layer covers whatever is at p below it: an ancestor
// is deleted, no directory, or opaque.
func (x *layerIndex) hides(p string) bool {
	for p != "/" {
		p = path.Dir(p)
		if e := x.entries[p]; e != nil && (e.Deleted || e.Opaque || e.Type != layer.Dir) {
			return true
		}
	}
	return false
}

// found is one path of a view.
type found struct {
	layer.Entry
	layer *layerIndex // nil when it is the base's
	host  string      // the file itself, when it is the base's
}

// lookup returns what is at a path; false when there is nothing.
func (v *view) lookup(p string) (found, bool, error) {
	var implied *found // a directory of which only lower layers know more
	for _, x := range v.layers {
		if e := x.entries[p]; e != nil {
			switch {
			case e.Deleted:
				return or(implied)
			case e.Implied:
				implied = &found{Entry: *e, layer: x}
			default:
				return found{Entry: *e, layer: x}, true, nil
			}
		}
		if x.hides(p) {
			return or(implied)
		}
	}
	f, ok, err := v.base.lookup(p)
	if err != nil || ok {
		return f, ok, err
	}
	return or(implied)
}

func or(implied *found) (found, bool, error) {
	if implied == nil {
		return found{}, false, nil
	}
	return *implied, true, nil
}

// children are the names that may be in a directory: some of them may be
// deleted by a layer, which lookup tells.
func (v *view) children(dir string) ([]string, error) {
	var names []string
	for _, x := range v.layers {
		names = append(names, x.children[dir]...)
		if e := x.entries[dir]; e != nil && (e.Deleted || e.Opaque || e.Type != layer.Dir) || x.hides(dir) {
			return names, nil
		}
	}
	below, err := v.base.children(dir)
	return append(names, below...), err
}

// walk adds every path below dir to all, which it does not let grow beyond
// what a diff may look at.
func (v *view) walk(dir string, all map[string]struct{}) error {
	names, err := v.children(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		if strings.Contains(name, "/") || p == dir {
			continue
		}
		f, ok, err := v.lookup(p)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := addPath(all, p); err != nil {
			return err
		}
		if f.Type == layer.Dir {
			if err := v.walk(p, all); err != nil {
				return err
			}
		}
	}
	return nil
}
