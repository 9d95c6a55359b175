package sandbox_test

import (
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// What is there goes on when the disk is nearly full; nothing new is made.
func TestDiskFloor(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	floor := int64(1) << 60
	w.config = func(c *sandbox.Config) { c.DiskFloor = floor }
	w.restart()
	a := w.engine.As(alice)
	_, err := a.Create(t.Context(), sandbox.CreateRequest{})
	wantCode(t, err, fault.Exhausted)
	if !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("it says %q", err)
	}
	_, err = a.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{})
	wantCode(t, err, fault.Exhausted)
	_, err = a.CreateCheckpoint(t.Context(), s.ID, "one")
	wantCode(t, err, fault.Exhausted)
	_, err = a.Fork(t.Context(), s.ID, sandbox.ForkRequest{})
	wantCode(t, err, fault.Exhausted)
	_, err = a.ImportSnapshot(t.Context(), strings.NewReader(""), sandbox.SnapshotRequest{})
	wantCode(t, err, fault.Exhausted)
	if x, _ := w.exec(alice, s.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("command beside a full disk: %+v", x)
	}
	if err := a.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	floor = 1
	w.restart()
	w.create(alice, sandbox.CreateRequest{})
}
