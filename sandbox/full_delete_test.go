package sandbox_test

import (
	"testing"

	"github.com/sandgate/sandgate/sandbox"
)

// On a full disk a sandbox can be deleted although nothing can be recorded:
// that is what makes room.
func TestDeleteOnAFullDisk(t *testing.T) {
	store := &refusing{}
	w := newWorld(t, func(c *sandbox.Config) { store.Store, c.Store = c.Store, store })
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	store.refuse = sandbox.Stopping
	must(t, w.engine.As(alice).Delete(t.Context(), s.ID))
	w.status(s.ID, sandbox.Deleted)
	if x = w.execEnded(x.ID); x.Status != sandbox.ExecCancelled {
		t.Errorf("the command ended %+v", x)
	}
	w.onHost(0)
}

// Neither does a sandbox stay recorded as up that ended then.
func TestEndOnAFullDisk(t *testing.T) {
	store := &refusing{}
	w := newWorld(t, func(c *sandbox.Config) { store.Store, c.Store = c.Store, store })
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	store.refuse = sandbox.Suspended
	w.host.Kill(s.ID)
	w.status(s.ID, sandbox.Suspended)
	if x = w.execEnded(x.ID); x.Status != sandbox.ExecFailed {
		t.Errorf("the command ended %+v", x)
	}
	s = w.create(alice, sandbox.CreateRequest{})
	w.close()
	w.host.Kill(s.ID)
	store.refuse = sandbox.Suspended
	w.open()
	w.status(s.ID, sandbox.Suspended)
}
