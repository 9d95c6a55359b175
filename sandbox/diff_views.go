package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// views reads two points. done removes what had to be saved for it.
func (a *Actor) views(ctx context.Context, from, to Point) (left, right *view, done func(), err error) {
	var temporary []string
	done = func() {
		for _, id := range temporary {
			a.e.discard(id)
		}
	}
	indexes := map[string]*layerIndex{} // layers are read once for both sides
	both := make([]*view, 2)
	for i, p := range []Point{from, to} {
		runtime, ids, saved, err := a.point(ctx, p)
		if saved != "" {
			temporary = append(temporary, saved)
		}
		if err == nil {
			both[i], err = a.e.view(ctx, runtime, ids, indexes)
		}
		if err != nil {
			done()
			return nil, nil, nil, err
		}
	}
	return both[0], both[1], done, nil
}

// point finds out what a point is made of: the runtime, and layers, the topmost
// first. saved is a layer that was made for it and that the caller discards.
func (a *Actor) point(ctx context.Context, p Point) (runtime RuntimeRef, layers []string, saved string, err error) {
	if err := p.validate(); err != nil {
		return RuntimeRef{}, nil, "", err
	}
	e := a.e
	switch {
	case p.Runtime != "":
		b, err := a.base(ctx, CreateRequest{Runtime: p.Runtime})
		return b.runtime, nil, "", err
	case p.Snapshot != "":
		b, err := a.snapshotBase(ctx, p.Snapshot)
		return b.runtime, b.layers, "", err
	case p.Checkpoint != "":
		s, err := a.resolve(ctx, p.Sandbox)
		if err != nil {
			return RuntimeRef{}, nil, "", err
		}
		if err := e.mine(&s); err != nil {
			return RuntimeRef{}, nil, "", err
		}
		c, err := e.checkpoint(ctx, s.ID, p.Checkpoint)
		return s.Runtime, append([]string{c.Layer}, s.Layers...), "", err
	}
	s, unlock, err := a.withFiles(ctx, p.Sandbox)
	if err != nil {
		return RuntimeRef{}, nil, "", err
	}
	defer unlock()
	l, err := e.saveLayer(ctx, &s)
	if err != nil {
		return RuntimeRef{}, nil, "", err
	}
	return s.Runtime, append([]string{l.ID}, s.Layers...), l.ID, nil
}

// view indexes layers over the files of a runtime.
func (e *Engine) view(ctx context.Context, runtime RuntimeRef, ids []string, indexes map[string]*layerIndex) (*view, error) {
	rootfs, err := e.cfg.Images.ProvideDigest(ctx, runtime)
	if err != nil {
		return nil, err
	}
	v := &view{base: newBaseFiles(ctx, rootfs)}
	for _, id := range ids {
		x := indexes[id]
		if x == nil {
			list, err := e.layerEntries(ctx, id)
			if err != nil {
				return nil, err
			}
			x = indexLayer(id, list)
			indexes[id] = x
		}
		v.layers = append(v.layers, x)
	}
	return v, nil
}

// layerEntries lists what a layer holds.
func (e *Engine) layerEntries(ctx context.Context, id string) ([]layer.Entry, error) {
	r, err := e.openLayer(ctx, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return layer.Entries(ctx, r)
}

// SnapshotFiles lists what the snapshot's own layer holds.
func (a *Actor) SnapshotFiles(ctx context.Context, snapshot string) ([]Change, error) {
	p, err := a.snapshot(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	if err := a.e.readable(&p); err != nil {
		return nil, err
	}
	list, err := a.e.layerEntries(ctx, p.Layer)
	if err != nil {
		return nil, err
	}
	changes := make([]Change, 0, len(list))
	for i := range list {
		switch e := &list[i]; {
		case e.Path == "/" || e.Implied:
		case e.Deleted:
			changes = append(changes, changeOf(Removed, e))
		default:
			changes = append(changes, changeOf(Added, e))
		}
	}
	return changes, nil
}
