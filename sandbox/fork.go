package sandbox

import (
	"context"
	"maps"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Fork makes a second sandbox with the files of the first. The first is held
// still only while its files are read; they share every layer below.
func (a *Actor) Fork(ctx context.Context, ref string, r ForkRequest) (Sandbox, error) {
	e := a.e
	if err := r.validate(e); err != nil {
		return Sandbox{}, err
	}
	if a.who.ID == "" {
		return Sandbox{}, fault.New(fault.Denied, "sandboxes can be made by a known principal only")
	}
	if r.Name != "" {
		if err := a.nameFree(ctx, r.Name); err != nil {
			return Sandbox{}, err
		}
	}
	parent, l, err := a.forkLayer(ctx, ref)
	if err != nil {
		return Sandbox{}, err
	}
	defer e.dropLayers(l.ID) // does nothing once the fork names it
	s := r.sandbox(&parent, e)
	if err := a.enclose(&s.Project); err != nil {
		return Sandbox{}, err
	}
	if err := a.label(ctx, s.Project, &s.Org); err != nil {
		return Sandbox{}, err
	}
	s.Owner, s.Layers = a.who.ID, append([]string{l.ID}, l.Below...)
	room, err := e.claim(ctx, a.who, &s, s.Limits.asked())
	if err != nil {
		return Sandbox{}, err
	}
	defer room.drop()
	rootfs, err := e.rootfsOf(ctx, s.Runtime, s.Layers)
	if err != nil {
		return Sandbox{}, err
	}
	ctx, done, err := e.creation(ctx, s.ID)
	if err != nil {
		return Sandbox{}, err
	}
	defer done()
	ev := e.event(s.ID, EventFork, a.who.ID, map[string]any{"parent": parent.ID, "name": s.Name, "env": r.InheritEnv})
	if s, err = e.raise(ctx, room, s, rootfs, nil, a.who.ID, ev); err != nil {
		return Sandbox{}, err
	}
	// On the parent after the fact: it was forked when there is a fork.
	_, err = e.cfg.Store.UpdateSandbox(context.WithoutCancel(ctx), parent.ID, func(p *Sandbox) ([]Event, error) {
		return []Event{e.event(p.ID, EventFork, a.who.ID, map[string]any{"child": s.ID, "name": s.Name})}, nil
	})
	if err != nil {
		e.cfg.Log.Warn("note a fork on its parent", "sandbox", parent.ID, "fork", s.ID, "err", err)
	}
	e.pulse.beat()
	return s, nil
}

// forkLayer keeps the files of the parent in a layer and records it.
func (a *Actor) forkLayer(ctx context.Context, ref string) (Sandbox, Layer, error) {
	s, unlock, err := a.withFiles(ctx, ref, "Fork")
	if err != nil {
		return s, Layer{}, err
	}
	defer unlock()
	if s.Mode == Oneshot {
		return s, Layer{}, fault.New(fault.State, "sandbox %s runs one command and ends; only an interactive one can be forked", s.ID).About("sandbox")
	}
	l, recorded, err := a.keepLayer(ctx, &s)
	if err != nil {
		return s, l, err
	}
	defer recorded()
	if err := a.e.cfg.Store.AddLayer(ctx, l); err != nil {
		a.e.discardUnrecorded(l.ID)
		return s, l, err
	}
	return s, l, nil
}

// validate checks a request.
func (r *ForkRequest) validate(e *Engine) error {
	c := CreateRequest{Name: r.Name, Description: r.Description, Env: r.Env, Limits: r.Limits}
	if r.Timeouts != nil {
		c.Timeouts = *r.Timeouts
	}
	return c.validate(e.caps)
}

// sandbox is the record of the fork.
func (r *ForkRequest) sandbox(parent *Sandbox, e *Engine) Sandbox {
	now := e.cfg.Now()
	s := Sandbox{
		ID: e.cfg.NewID(prefixSandbox), Name: r.Name, Description: r.Description, Mode: Interactive, Status: Creating,
		Project: parent.Project, Org: parent.Org, Driver: parent.Driver, Runtime: parent.Runtime,
		Limits: r.Limits.withDefaults(parent.Limits, e.caps), Env: map[string]string{}, Metadata: maps.Clone(parent.Metadata),
		Timeouts: parent.Timeouts, Guest: e.cfg.GuestDigest, Port: parent.Port, Network: parent.Network,
		SnapshotID: parent.SnapshotID, SnapshotTag: parent.SnapshotTag, Parent: parent.ID,
		CreatedAt: now, UpdatedAt: now, ActiveAt: now,
	}
	if r.Description == "" {
		s.Description = parent.Description
	}
	if r.InheritEnv {
		maps.Copy(s.Env, parent.Env)
	}
	maps.Copy(s.Env, r.Env)
	if r.Timeouts != nil {
		s.Timeouts = *r.Timeouts
	}
	return s
}
