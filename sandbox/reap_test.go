package sandbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A removal that failed is tried again, without anybody asking for it.
func TestFailedRemovalIsFinished(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	w.host.FailNext(fake.Remove, errors.New("the host has other things to do"))
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err == nil {
		t.Fatal("a removal that failed was answered")
	}
	w.status(s.ID, sandbox.Stopping)
	w.engine.Reap(t.Context())
	w.status(s.ID, sandbox.Stopping) // not at once: it may be under way
	w.now.advance(time.Minute)
	w.engine.Reap(t.Context())
	got, err := w.engine.As(alice).Get(t.Context(), s.ID)
	if err != nil && !fault.Is(err, fault.NotFound) || got.Status != sandbox.Deleted {
		t.Errorf("it is %s, %v", got.Status, err)
	}
	w.onHost(0)
}
