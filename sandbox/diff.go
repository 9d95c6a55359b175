package sandbox

import (
	"context"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// maxDiffEntries bounds how many paths a diff looks at.
const maxDiffEntries = 1_000_000

// Diff says how one point differs from another.
func (a *Actor) Diff(ctx context.Context, from, to Point) ([]Change, error) {
	left, right, done, err := a.views(ctx, from, to)
	if err != nil {
		return nil, err
	}
	defer done()
	paths := make(map[string]struct{})
	if left.base.same(right.base) {
		err = differingPaths(left, right, paths)
	} else {
		for _, v := range []*view{left, right} {
			if err == nil {
				err = v.walk("/", paths)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	var changes []Change
	for p := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, differs, err := compare(left, right, p)
		if err != nil {
			return nil, err
		}
		if differs {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes, nil
}

// addPath notes a path to compare.
func addPath(all map[string]struct{}, p string) error {
	all[p] = struct{}{}
	if len(all) > maxDiffEntries {
		return fault.New(fault.Exhausted, "more than %d paths would have to be compared; compare points that have more in common", maxDiffEntries).About("diff")
	}
	return nil
}

// differingPaths collects the paths that can differ between views on the same
// base: what is in the layers that are not on both sides, and below what these
// delete or replace.
func differingPaths(left, right *view, all map[string]struct{}) error {
	shared := 0
	for shared < len(left.layers) && shared < len(right.layers) &&
		left.layers[len(left.layers)-1-shared].id == right.layers[len(right.layers)-1-shared].id {
		shared++
	}
	for _, v := range []*view{left, right} {
		for _, x := range v.layers[:len(v.layers)-shared] {
			for p, e := range x.entries {
				if err := addPath(all, p); err != nil {
					return err
				}
				if !e.Deleted && !e.Opaque && e.Type == layer.Dir {
					continue
				}
				for _, side := range []*view{left, right} {
					if f, ok, err := side.lookup(p); err != nil || !ok || f.Type != layer.Dir {
						if err != nil {
							return err
						}
						continue
					}
					if err := side.walk(p, all); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// compare says how a path differs.
func compare(left, right *view, p string) (Change, bool, error) {
	if p == "/" { // every driver has its own idea of the root itself
		return Change{}, false, nil
	}
	l, inLeft, err := left.lookup(p)
	if err != nil {
		return Change{}, false, err
	}
	r, inRight, err := right.lookup(p)
	if err != nil {
		return Change{}, false, err
	}
	switch {
	case !inLeft && !inRight:
		return Change{}, false, nil
	case !inLeft:
		return changeOf(Added, &r.Entry), true, nil
	case !inRight:
		return changeOf(Removed, &l.Entry), true, nil
	}
	why, err := whatDiffers(left, right, &l, &r)
	c := changeOf(Changed, &r.Entry)
	c.Why = strings.Join(why, ",")
	return c, len(why) > 0, err
}

func changeOf(kind ChangeKind, e *layer.Entry) Change {
	return Change{Path: e.Path, Kind: kind, Type: string(e.Type), Size: e.Size, Mode: e.Mode, Mtime: e.ModTime}
}

// whatDiffers lists in which ways two entries of one path differ.
func whatDiffers(left, right *view, l, r *found) ([]string, error) {
	if l.Type != r.Type {
		return []string{"type"}, nil
	}
	if l.host != "" && l.host == r.host || l.Implied || r.Implied {
		return nil, nil
	}
	var why []string
	switch l.Type {
	case layer.File:
		same, err := sameContent(left, right, l, r)
		if err != nil {
			return nil, err
		}
		if !same {
			why = append(why, "content")
		}
	case layer.Link:
		if l.Target != r.Target {
			why = append(why, "target")
		}
	}
	if l.Mode != r.Mode && l.Type != layer.Link {
		why = append(why, "mode")
	}
	if l.UID != r.UID || l.GID != r.GID {
		why = append(why, "owner")
	}
	return why, nil
}

func sameContent(left, right *view, l, r *found) (bool, error) {
	if l.Size != r.Size {
		return false, nil
	}
	for _, side := range []struct {
		v *view
		f *found
	}{{left, l}, {right, r}} {
		if side.f.host == "" || side.f.Digest != "" {
			continue
		}
		var err error
		if side.f.Digest, err = side.v.base.digest(side.f.host); err != nil {
			return false, err
		}
	}
	return l.Digest == r.Digest, nil
}
