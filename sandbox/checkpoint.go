package sandbox

import (
	"context"
	"strings"
	"unicode"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxCheckpoints bounds the checkpoints of one sandbox.
const maxCheckpoints = 100

// validateCheckpointName checks the name of a checkpoint. Where a name is
// written an id may stand as well.
func validateCheckpointName(name string) error {
	switch {
	case strings.HasPrefix(name, prefixCheckpoint+"_"):
		return fault.InvalidField("name", "%q looks like an id; choose another", clip(name, 64))
	case len(name) > 128, strings.TrimSpace(name) != name, strings.ContainsFunc(name, unicode.IsControl):
		return fault.InvalidField("name", "%q is not a name: use up to 128 bytes in one line", clip(name, 64))
	}
	return nil
}

// CreateCheckpoint keeps the files of a sandbox as they are, to go back to.
func (a *Actor) CreateCheckpoint(ctx context.Context, ref, name string) (Checkpoint, error) {
	if err := validateCheckpointName(name); err != nil {
		return Checkpoint{}, err
	}
	s, unlock, err := a.withFiles(ctx, ref, "CreateCheckpoint")
	if err != nil {
		return Checkpoint{}, err
	}
	defer unlock()
	e := a.e
	kept, err := e.cfg.Store.Checkpoints(ctx, s.ID)
	if err != nil {
		return Checkpoint{}, err
	}
	if len(kept) >= maxCheckpoints {
		return Checkpoint{}, fault.New(fault.Exhausted, "sandbox %s has %d checkpoints, as many as one may; delete one first", s.ID, len(kept)).About("checkpoint")
	}
	c := Checkpoint{ID: e.cfg.NewID(prefixCheckpoint), SandboxID: s.ID, Name: name, CreatedAt: e.cfg.Now()}
	if c.Name == "" {
		c.Name = c.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	for _, k := range kept { // before anything long is begun; the store decides for good
		if k.Name == c.Name {
			return Checkpoint{}, &fault.Error{Code: fault.Exists, Kind: "checkpoint", Field: "name",
				Message: "sandbox " + s.ID + " has a checkpoint named " + c.Name + " already; choose another name or delete it"}
		}
	}
	l, recorded, err := a.keepLayer(ctx, &s)
	if err != nil {
		return Checkpoint{}, err
	}
	defer recorded()
	c.Layer, c.SizeBytes, c.Files = l.ID, l.SizeBytes, l.Files
	ev := e.event(s.ID, EventCheckpointCreate, a.who.ID, map[string]any{"checkpointId": c.ID, "name": c.Name, "sizeBytes": c.SizeBytes})
	if err := e.cfg.Store.CreateCheckpoint(ctx, c, l, ev); err != nil {
		e.discardUnrecorded(l.ID)
		return Checkpoint{}, err
	}
	e.pulse.beat()
	return c, nil
}

// Checkpoints lists the checkpoints of a sandbox, newest first.
func (a *Actor) Checkpoints(ctx context.Context, ref string) ([]Checkpoint, error) {
	s, err := a.resolve(ctx, ref, "Checkpoints")
	if err != nil {
		return nil, err
	}
	return a.e.cfg.Store.Checkpoints(ctx, s.ID)
}

// checkpoint finds a checkpoint of a sandbox by id or name.
func (e *Engine) checkpoint(ctx context.Context, sandboxID, ref string) (Checkpoint, error) {
	all, err := e.cfg.Store.Checkpoints(ctx, sandboxID)
	if err != nil {
		return Checkpoint{}, err
	}
	for _, c := range all {
		if c.ID == ref || c.Name == ref {
			return c, nil
		}
	}
	return Checkpoint{}, fault.New(fault.NotFound, "sandbox %s has no checkpoint %q; `checkpoint list %s` shows them", sandboxID, clip(ref, 64), sandboxID).About("checkpoint")
}

// DeleteCheckpoint deletes a checkpoint.
func (a *Actor) DeleteCheckpoint(ctx context.Context, ref, checkpoint string) error {
	s, err := a.resolve(ctx, ref, "DeleteCheckpoint")
	if err != nil {
		return err
	}
	unlock, err := a.e.locks.lock(ctx, s.ID) // not while it is being restored
	if err != nil {
		return err
	}
	defer unlock()
	c, err := a.e.checkpoint(ctx, s.ID, checkpoint)
	if err != nil {
		return err
	}
	ev := a.e.event(s.ID, EventCheckpointDelete, a.who.ID, map[string]any{"checkpointId": c.ID, "name": c.Name})
	if err := a.e.cfg.Store.DeleteCheckpoint(ctx, c.ID, ev); err != nil {
		return err
	}
	a.e.pulse.beat()
	a.e.dropLayers(c.Layer)
	return nil
}
