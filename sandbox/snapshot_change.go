package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// TagSnapshot moves a tag to a snapshot, or clears the one it has.
func (a *Actor) TagSnapshot(ctx context.Context, snapshot, tag string) (Snapshot, error) {
	if tag == NoTag {
		tag = ""
	}
	if tag != "" {
		if err := ValidateTag(tag); err != nil {
			return Snapshot{}, err
		}
	}
	p, err := a.ownSnapshot(ctx, snapshot, "TagSnapshot")
	if err != nil {
		return Snapshot{}, err
	}
	p, err = a.e.cfg.Store.UpdateSnapshot(ctx, p.ID, func(p *Snapshot) error {
		p.Tag = tag
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		err = noSnapshot(snapshot)
	}
	return p, err
}

// DeleteSnapshot deletes a snapshot.
func (a *Actor) DeleteSnapshot(ctx context.Context, snapshot string, cascade bool) error {
	p, err := a.ownSnapshot(ctx, snapshot, "DeleteSnapshot")
	if err != nil {
		return err
	}
	family, err := a.descendants(ctx, p)
	if err != nil {
		return err
	}
	if err := a.unused(ctx, family, cascade); err != nil {
		return err
	}
	// The youngest first: a layer goes before those under it.
	var also, layers []string
	for _, d := range slices.Backward(family) {
		l, err := a.e.cfg.Store.Layer(ctx, d.Layer)
		if err != nil {
			return err
		}
		layers = append(layers, append([]string{l.ID}, l.Below...)...)
		if d.ID != p.ID {
			also = append(also, d.ID)
		}
	}
	err = a.e.cfg.Store.DeleteSnapshot(ctx, p.ID, also...)
	switch {
	case fault.Is(err, fault.NotFound):
		return noSnapshot(snapshot)
	case fault.Is(err, fault.State): // something was made from it a moment ago
		return fault.Wrap(err, fault.State, "snapshot %s came into use a moment ago; try again", p.ID).About("snapshot")
	case err != nil:
		return err
	}
	a.e.cfg.Log.Info("snapshot deleted", "snapshot", p.ID, "with", also, "by", a.who.ID)
	a.e.dropLayers(layers...)
	return nil
}

// descendants are the snapshot and those made from it, parents before children.
func (a *Actor) descendants(ctx context.Context, p Snapshot) ([]Snapshot, error) {
	family := []Snapshot{p}
	for i := 0; i < len(family); i++ {
		if len(family) > maxLineage {
			return nil, fault.New(fault.Exhausted, "more than %d snapshots were made from %s; delete some of them first", maxLineage, p.ID).About("snapshot")
		}
		children, _, err := a.e.cfg.Store.Snapshots(ctx, SnapshotFilter{Parent: family[i].ID, Asc: true})
		if err != nil {
			return nil, err
		}
		family = append(family, children...)
	}
	return family, nil
}

// unused refuses to delete the first of a family of snapshots while sandboxes
// were made from it, or snapshots that do not go with it. What belongs to
// others is counted and not named.
func (a *Actor) unused(ctx context.Context, family []Snapshot, cascade bool) error {
	var sandboxes, snapshots []string
	foreign := 0
	for i, p := range family {
		if i > 0 {
			mine, err := a.owns(ctx, &p)
			switch {
			case err != nil:
				return err
			case !mine:
				foreign++
			case !cascade:
				snapshots = append(snapshots, p.ID)
			}
		}
		if i > 0 && !cascade {
			continue
		}
		users, _, err := a.e.cfg.Store.Sandboxes(ctx, SandboxFilter{Snapshot: p.ID, LiveOnly: true})
		if err != nil {
			return err
		}
		for _, s := range users {
			switch seen, err := a.may(ctx, &s); {
			case err != nil:
				return err
			case seen:
				sandboxes = append(sandboxes, s.ID)
			default:
				foreign++
			}
		}
	}
	var parts []string
	next := "delete them first"
	if len(sandboxes) > 0 {
		parts = append(parts, "sandboxes "+someOf(sandboxes))
	}
	if len(snapshots) > 0 {
		parts = append(parts, "snapshots "+someOf(snapshots))
		if len(sandboxes) == 0 && foreign == 0 {
			next += ", or all at once with --cascade"
		}
	}
	if foreign > 0 {
		parts = append(parts, fmt.Sprintf("%d things of other people", foreign))
		if len(parts) == 1 {
			next = "it can be deleted when they are gone"
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fault.New(fault.State, "snapshot %s is in use by %s; %s", family[0].ID, strings.Join(parts, " and "), next).About("snapshot")
}

// someOf names the first few of a list.
func someOf(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
