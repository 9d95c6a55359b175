package sandbox

import (
	"context"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxLineage bounds how far a chain of snapshots is followed.
const maxLineage = 1000

// IsSnapshotID reports whether s looks like the id of a snapshot; no tag does.
func IsSnapshotID(s string) bool { return strings.HasPrefix(s, prefixSnapshot+"_") }

// noSnapshot is the one answer for a snapshot that does not exist and for one
// the actor may not know about.
func noSnapshot(ref string) error {
	return fault.New(fault.NotFound, "no snapshot %q; `snapshot list` shows yours", clip(ref, 64)).About("snapshot")
}

// owns reports whether the snapshot is the actor's, and within the scope of the
// actor's key: of one of its projects, or taken from one of its sandboxes.
func (a *Actor) owns(ctx context.Context, p *Snapshot) (bool, error) {
	switch {
	case !a.who.IsAdmin() && (a.who.ID == "" || p.Owner != a.who.ID):
		return false, nil
	case inFence(a.who.Scope, a.who.ID, p.SandboxID, "", "", p.Project):
		return true, nil
	}
	s, err := a.e.cfg.Store.Sandbox(ctx, p.SandboxID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && a.within(&s), err
}

// snapshot finds what a reference means: an id of one that the actor may use,
// or a tag among the actor's own. Nobody's tags reach anybody else, as with
// the names of sandboxes.
func (a *Actor) snapshot(ctx context.Context, ref string, op operation) (Snapshot, error) {
	p, err := a.findSnapshot(ctx, ref)
	if err == nil && !p.Public {
		var mine bool
		if mine, err = a.owns(ctx, &p); err == nil && !mine {
			err = noSnapshot(ref)
		}
	}
	if err == nil {
		err = a.allow(op)
	}
	if err != nil {
		return Snapshot{}, err
	}
	return p, nil
}

func (a *Actor) findSnapshot(ctx context.Context, ref string) (Snapshot, error) {
	if IsSnapshotID(ref) {
		p, err := a.e.cfg.Store.Snapshot(ctx, ref)
		if fault.Is(err, fault.NotFound) {
			err = noSnapshot(ref)
		}
		return p, err
	}
	if a.who.ID == "" || !tagRule.MatchString(ref) {
		return Snapshot{}, noSnapshot(ref)
	}
	own, _, err := a.e.cfg.Store.Snapshots(ctx, SnapshotFilter{Owner: a.who.ID, Tag: ref, Limit: 1})
	if err != nil {
		return Snapshot{}, err
	}
	if len(own) == 0 {
		return Snapshot{}, noSnapshot(ref)
	}
	return own[0], nil
}

// ownSnapshot is snapshot for an actor who wants to change it.
func (a *Actor) ownSnapshot(ctx context.Context, ref string, op operation) (Snapshot, error) {
	p, err := a.snapshot(ctx, ref, op)
	if err != nil {
		return p, err
	}
	mine, err := a.owns(ctx, &p)
	if err == nil && !mine {
		err = fault.New(fault.Denied, "snapshot %s is public and not yours: only its owner can change it", p.ID).About("snapshot")
	}
	return p, err
}

// shown is the snapshot as the actor may see it: of a public one of somebody
// else, not which sandbox it came from and where its owner files it.
func (a *Actor) shown(p Snapshot) Snapshot {
	if !a.who.IsAdmin() && p.Owner != a.who.ID {
		p.SandboxID, p.Project, p.Org = "", "", ""
	}
	return p
}

// Snapshot returns one snapshot.
func (a *Actor) Snapshot(ctx context.Context, snapshot string) (Snapshot, error) {
	p, err := a.snapshot(ctx, snapshot, "Snapshot")
	return a.shown(p), err
}

// Snapshots lists the snapshots the actor may see.
func (a *Actor) Snapshots(ctx context.Context, f SnapshotFilter) ([]Snapshot, int, error) {
	if err := a.allow("Snapshots"); err != nil {
		return nil, 0, err
	}
	switch {
	case f.Limit == 0:
		f.Limit = 50
	case f.Limit < 0 || f.Limit > 1000:
		return nil, 0, fault.InvalidField("limit", "must be 1 to 1000")
	}
	if f.Offset < 0 {
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	}
	switch f.SortBy {
	case "", "name", "created", "size", "files":
	default:
		return nil, 0, fault.InvalidField("sort", "%q is not a field to sort by: use name, created, size or files", clip(f.SortBy, 32))
	}
	if !a.who.IsAdmin() {
		own := a.who.ID != "" && (f.Owner == a.who.ID || (f.Owner == "" && !f.Public))
		switch {
		case own:
			f.Owner = a.who.ID
		case f.Owner == "" && f.Public:
			if f.Sandbox != "" { // where they came from is not shown, so not searched either
				return nil, 0, nil
			}
		default:
			return nil, 0, nil
		}
	}
	if a.who.Scope.Fenced() && !f.Public {
		f.Seen = &Visibility{Admin: a.who.IsAdmin(), Principal: a.who.ID, Scope: a.who.Scope}
	}
	page, total, err := a.e.cfg.Store.Snapshots(ctx, f)
	for i := range page {
		page[i] = a.shown(page[i])
	}
	return page, total, err
}

// Lineage returns the snapshot and its ancestors. It ends before one that the
// actor may not see.
func (a *Actor) Lineage(ctx context.Context, snapshot string) ([]Snapshot, error) {
	return a.lineage(ctx, snapshot, "Lineage")
}

func (a *Actor) lineage(ctx context.Context, snapshot string, op operation) ([]Snapshot, error) {
	p, err := a.snapshot(ctx, snapshot, op)
	if err != nil {
		return nil, err
	}
	line := []Snapshot{a.shown(p)}
	for p.Parent != "" && len(line) < maxLineage {
		if p, err = a.snapshot(ctx, p.Parent, op); fault.Is(err, fault.NotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		line = append(line, a.shown(p))
	}
	return line, nil
}

// SandboxesOf lists the live sandboxes made from a snapshot, as far as the
// actor may see them.
func (a *Actor) SandboxesOf(ctx context.Context, snapshot string) ([]Sandbox, error) {
	p, err := a.snapshot(ctx, snapshot, "SandboxesOf")
	if err != nil || a.who.ID == "" && !a.who.IsAdmin() {
		return nil, err
	}
	f := SandboxFilter{Snapshot: p.ID, LiveOnly: true}
	if f.Owner, f.Seen, err = a.seen(ctx); err != nil {
		return nil, err
	}
	list, _, err := a.e.cfg.Store.Sandboxes(ctx, f)
	return list, err
}
