package sandbox

import (
	"context"
	"io"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// sides finds out what two points are made of. done removes what had to be
// saved for it.
func (a *Actor) sides(ctx context.Context, from, to Point, op operation) (left, right *side, done func(), err error) {
	if err := a.allow(op); err != nil {
		return nil, nil, nil, err
	}
	var temporary []string
	done = func() {
		for _, id := range temporary {
			a.e.discard(id)
		}
	}
	var both [2]*side
	for i, p := range []Point{from, to} {
		runtime, ids, saved, err := a.point(ctx, p, op)
		if saved != "" {
			temporary = append(temporary, saved)
		}
		if err == nil {
			both[i], err = a.e.side(ctx, runtime, ids)
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
func (a *Actor) point(ctx context.Context, p Point, op operation) (runtime RuntimeRef, layers []string, saved string, err error) {
	if err := p.validate(); err != nil {
		return RuntimeRef{}, nil, "", err
	}
	e := a.e
	switch {
	case p.Runtime != "":
		b, err := a.base(ctx, CreateRequest{Runtime: p.Runtime}, op)
		return b.runtime, nil, "", err
	case p.Snapshot != "":
		b, err := a.snapshotBase(ctx, p.Snapshot, op)
		return b.runtime, b.layers, "", err
	case p.Checkpoint != "":
		s, err := a.resolve(ctx, p.Sandbox, op)
		if err != nil {
			return RuntimeRef{}, nil, "", err
		}
		if err := e.mine(&s); err != nil {
			return RuntimeRef{}, nil, "", err
		}
		c, err := e.checkpoint(ctx, s.ID, p.Checkpoint)
		return s.Runtime, append([]string{c.Layer}, s.Layers...), "", err
	}
	s, unlock, err := a.withFiles(ctx, p.Sandbox, op)
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

// side is layers over the files a runtime had.
func (e *Engine) side(ctx context.Context, runtime RuntimeRef, ids []string) (*side, error) {
	rootfs, err := e.cfg.Images.ProvideDigest(ctx, runtime)
	if err != nil {
		return nil, err
	}
	s := &side{rootfs: rootfs}
	for _, id := range ids {
		s.stack = append(s.stack, layer.Source{ID: id, Open: func() (io.ReadCloser, error) { return e.openLayer(ctx, id) }})
	}
	return s, nil
}

// SnapshotFiles lists what the snapshot's own layer holds.
func (a *Actor) SnapshotFiles(ctx context.Context, snapshot string) ([]Change, error) {
	p, err := a.snapshot(ctx, snapshot, "SnapshotFiles")
	if err != nil {
		return nil, err
	}
	if err := a.e.readable(&p); err != nil {
		return nil, err
	}
	r, err := a.e.openLayer(ctx, p.Layer)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	list, err := layer.Entries(ctx, r)
	if err != nil {
		return nil, err
	}
	changes := make([]Change, 0, len(list))
	for _, e := range list {
		c := Change{Path: e.Path, Kind: Added, Type: string(e.Type), Size: e.Size, Mode: e.Mode, Mtime: e.ModTime}
		switch {
		case e.Path == "/" || e.Implied:
			continue
		case e.Deleted:
			c.Kind = Removed
		}
		changes = append(changes, c)
	}
	return changes, nil
}
