package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestDeleteSnapshot(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{})
	p := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "one"})
	made := w.create(alice, sandbox.CreateRequest{Snapshot: "one"})
	child := w.snapshot(alice, made.ID, sandbox.SnapshotRequest{Tag: "two"})
	refused := func(cascade bool, names ...string) {
		t.Helper()
		err := a.DeleteSnapshot(t.Context(), "one", cascade)
		wantCode(t, err, fault.State)
		for _, n := range names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("%q does not name %s", err, n)
			}
		}
	}
	refused(false, made.ID, child.ID)
	refused(true, made.ID)
	if err := a.Delete(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	refused(false, child.ID, "--cascade")
	w.consistent(2)
	if err := a.DeleteSnapshot(t.Context(), "one", true); err != nil {
		t.Fatal(err)
	}
	w.consistent(0)
	wantCode(t, a.DeleteSnapshot(t.Context(), p.ID, true), fault.NotFound)

	// The files of a deleted snapshot stay while a sandbox that is not made
	// from it lies on them: a child's own.
	p = w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	made = w.create(alice, sandbox.CreateRequest{Snapshot: p.ID})
	if _, err := a.CreateCheckpoint(t.Context(), made.ID, "c"); err != nil {
		t.Fatal(err)
	}
	w.consistent(2)
	if err := a.Delete(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	w.consistent(1)
	if err := a.DeleteSnapshot(t.Context(), p.ID, false); err != nil {
		t.Fatal(err)
	}
	w.consistent(0)
}

// failingStore fails to record, as on a full disk.
type failingStore struct {
	sandbox.Store
	err error
}

func (s *failingStore) CreateSnapshot(ctx context.Context, p sandbox.Snapshot, l sandbox.Layer, evs ...sandbox.Event) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.CreateSnapshot(ctx, p, l, evs...)
}

func (s *failingStore) CreateCheckpoint(ctx context.Context, c sandbox.Checkpoint, l sandbox.Layer, evs ...sandbox.Event) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.CreateCheckpoint(ctx, c, l, evs...)
}

func (s *failingStore) AddLayer(ctx context.Context, l sandbox.Layer) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.AddLayer(ctx, l)
}

// TestNothingHalfMade breaks the making of snapshots, checkpoints and forks at
// every step, and kills the server at those where it would have cleaned up.
func TestNothingHalfMade(t *testing.T) {
	full := fault.New(fault.Exhausted, "the disk is full")
	st := &failingStore{}
	w := newWorld(t, func(c *sandbox.Config) { st.Store = c.Store; c.Store = st })
	s := w.create(alice, sandbox.CreateRequest{})
	w.write(alice, s.ID, "a", "one")
	for what, do := range map[string]func(a *sandbox.Actor) error{
		"snapshot": func(a *sandbox.Actor) error {
			_, err := a.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{})
			return err
		},
		"checkpoint": func(a *sandbox.Actor) error { _, err := a.CreateCheckpoint(t.Context(), s.ID, ""); return err },
		"fork":       func(a *sandbox.Actor) error { _, err := a.Fork(t.Context(), s.ID, sandbox.ForkRequest{}); return err },
		"diff": func(a *sandbox.Actor) error {
			_, err := a.Diff(t.Context(), sandbox.Point{Runtime: "tiny:1"}, sandbox.Point{Sandbox: s.ID})
			return err
		},
	} {
		for step, arrange := range map[string]func(){
			"save":   func() { w.host.FailNext(fake.Save, full) },
			"export": func() { w.host.FailNext(fake.Export, full) },
			"record": func() { st.err = full },
		} {
			if what == "diff" && step == "record" {
				continue
			}
			for _, crash := range []bool{false, true} {
				if crash && step == "save" {
					continue // nothing of a layer is left then, so there is nothing to break
				}
				t.Run(what+" "+step, func(t *testing.T) {
					arrange()
					if crash { // nobody is left to clean up
						w.host.FailNext(fake.Discard, errors.New("killed"))
					}
					wantCode(t, do(w.engine.As(alice)), fault.Exhausted)
					st.err = nil
					if crash {
						w.restart()
					}
					w.consistent(0)
				})
			}
		}
	}
	// Neither is a deletion that was cut off.
	p := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	w.host.FailNext(fake.Discard, errors.New("killed"))
	if err := w.engine.As(alice).DeleteSnapshot(t.Context(), p.ID, false); err != nil {
		t.Fatal(err)
	}
	if len(w.savedFolders()) == 0 {
		t.Fatal("this test breaks nothing")
	}
	w.restart()
	w.consistent(0)
	if got := w.read(alice, s.ID, "a"); got != "one" {
		t.Errorf("the sandbox has %q", got)
	}
}

// TestSnapshotsWithoutSaver: an engine that keeps nothing says why.
func TestSnapshotsWithoutSaver(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	p := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	w.unsupported = map[string]string{"snapshots": "not here"}
	w.restart()
	a := w.engine.As(alice)
	_, err := a.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{})
	if wantCode(t, err, fault.Unsupported); !strings.Contains(err.Error(), "not here") {
		t.Errorf("%v", err)
	}
	_, err = a.Create(t.Context(), sandbox.CreateRequest{Snapshot: p.ID})
	wantCode(t, err, fault.Unsupported)
	if got, err := a.Snapshot(t.Context(), p.ID); err != nil || got.ID != p.ID {
		t.Errorf("the record is gone: %v", err)
	}
}
