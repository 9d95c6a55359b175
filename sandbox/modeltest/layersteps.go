package modeltest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (r *run) snapshotOps() sandbox.SnapshotOperations { return r.actor() }
func (r *run) jobOps() sandbox.JobOperations           { return r.actor() }
func (r *run) lifeOps() sandbox.LifecycleOperations    { return r.actor() }

func (r *run) snapshot() {
	b := r.pick()
	r.note("   of %s", b.id)
	s, err := r.snapshotOps().CreateSnapshot(r.ctx(), b.id, sandbox.SnapshotRequest{Tag: sandbox.NoTag})
	if r.answered("snapshot", err, func() { r.model.unknown = true }) {
		r.note("   %s", s.ID)
		r.model.snapshots[s.ID] = &snapshot{id: s.ID, files: b.files.clone(), may: only(there)}
	}
}

func (r *run) deleteSnapshot() {
	ids := slices.Sorted(maps.Keys(r.model.snapshots))
	s := r.model.snapshots[ids[r.rand.IntN(len(ids))]]
	r.note("   %s", s.id)
	err := r.snapshotOps().DeleteSnapshot(r.ctx(), s.id, false)
	if fault.Is(err, fault.State) {
		return // something was made from it
	}
	if r.answered("delete a snapshot", err, func() { s.may[gone] = true }) {
		delete(r.model.snapshots, s.id)
	}
}

// point returns the name of one of the checkpoints of a sandbox.
func (r *run) point(b *box) (string, bool) {
	all := slices.Sorted(maps.Keys(b.points))
	if len(all) == 0 {
		return "", false
	}
	return all[r.rand.IntN(len(all))], true
}

func (r *run) checkpoint() {
	b := r.pick()
	if len(b.points) >= maxPoints {
		return
	}
	name := fmt.Sprintf("p%d", r.step)
	r.note("   %s %s", b.id, name)
	_, err := r.snapshotOps().CreateCheckpoint(r.ctx(), b.id, name)
	if r.answered("checkpoint", err, func() { b.maybePoint = name }) {
		b.points[name] = b.files.clone()
	}
}

func (r *run) restore() {
	b := r.pick()
	name, ok := r.point(b)
	if !ok {
		return
	}
	r.note("   %s to %s", b.id, name)
	was := maps.Clone(b.statuses)
	s, err := r.snapshotOps().RestoreCheckpoint(r.ctx(), b.id, name)
	perhaps := func() {
		b.files = b.files.or(b.points[name])
		b.statuses[up], b.statuses[down] = true, true
		b.loseJobs()
	}
	if !r.answered("restore", err, perhaps) {
		return
	}
	b.files = b.points[name].clone()
	b.loseJobs()
	if s.Status.Up() != was[up] && len(was) == 1 {
		r.t.Errorf("%s was %s and is %s after a restore", b.id, was, s.Status)
	}
}

func (r *run) deleteCheckpoint() {
	b := r.pick()
	name, ok := r.point(b)
	if !ok {
		return
	}
	r.note("   %s %s", b.id, name)
	if r.answered("delete a checkpoint", r.snapshotOps().DeleteCheckpoint(r.ctx(), b.id, name), func() { b.maybePoint = name }) {
		delete(b.points, name)
	}
}

func (r *run) fork() {
	b := r.pick()
	r.note("   of %s", b.id)
	s, err := r.snapshotOps().Fork(r.ctx(), b.id, sandbox.ForkRequest{})
	if r.answered("fork", err, func() { r.model.unknown = true }) {
		r.add(s.ID, b.files.clone())
	}
}

// learnPoints looks at the checkpoints of a sandbox after a crash.
func (r *run) learnPoints(b *box) {
	list, err := r.snapshotOps().Checkpoints(r.ctx(), b.id)
	if err != nil {
		r.t.Errorf("checkpoints of %s: %v", b.id, err)
	}
	found := map[string]bool{}
	for _, c := range list {
		found[c.Name] = true
		if b.points[c.Name] != nil {
			continue
		}
		if c.Name != b.maybePoint {
			r.t.Errorf("%s has a checkpoint %s that nobody made", b.id, c.Name)
		}
		if err := r.snapshotOps().DeleteCheckpoint(r.ctx(), b.id, c.Name); err != nil {
			r.t.Errorf("delete checkpoint %s of %s: %v", c.Name, b.id, err)
		}
	}
	for name := range b.points {
		if found[name] {
			continue
		}
		if name != b.maybePoint {
			r.t.Errorf("checkpoint %s of %s is lost", name, b.id)
		}
		delete(b.points, name)
	}
	b.maybePoint = ""
}

// layersDir is where the engine keeps the saved layers of this driver.
func (r *run) layersDir() string { return filepath.Join(r.dir, "layers", r.gate.Name()) }

// checkLayers compares the folders of saved layers with their records, and
// looks for output that no sandbox owns.
func (r *run) checkLayers() {
	layers, err := r.store.Layers(r.ctx())
	if err != nil {
		r.t.Errorf("layers: %v", err)
	}
	known := map[string]bool{}
	for _, l := range layers {
		known[l.ID] = true
		if _, err := os.Stat(filepath.Join(r.layersDir(), l.ID)); err != nil {
			r.t.Errorf("layer %s: %v", l.ID, err)
		}
	}
	entries, err := os.ReadDir(r.layersDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Error(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			r.t.Errorf("the folder of layer %s has no record", e.Name())
		}
	}
	if len(layers) > 0 && len(r.model.boxes)+len(r.model.snapshots) == 0 {
		r.t.Errorf("%d layers are left and nothing uses them", len(layers))
	}
}

// clear deletes everything and looks whether something is left.
func (r *run) clear() {
	for id := range r.model.boxes {
		if err := r.actor().Delete(r.ctx(), id); err != nil {
			r.t.Errorf("delete %s: %v", id, withCause(err))
		}
		delete(r.model.boxes, id)
	}
	for len(r.model.snapshots) > 0 {
		before := len(r.model.snapshots)
		for id := range r.model.snapshots {
			err := r.snapshotOps().DeleteSnapshot(r.ctx(), id, true)
			if err == nil || fault.Is(err, fault.NotFound) {
				delete(r.model.snapshots, id)
			}
		}
		if len(r.model.snapshots) == before {
			r.t.Errorf("%d snapshots cannot be deleted", before)
			return
		}
	}
	r.check()
	if entries, err := os.ReadDir(r.layersDir()); err == nil && len(entries) > 0 {
		r.t.Errorf("%d folders of layers are left", len(entries))
	}
}
