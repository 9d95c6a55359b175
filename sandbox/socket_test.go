package sandbox_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func TestListen(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	a := w.engine.As(alice)
	r := guest.ListenRequest{Network: "unix"}
	if _, err := w.engine.As(bob).Listen(t.Context(), s.ID, r); !fault.Is(err, fault.NotFound) {
		t.Errorf("in another's sandbox: %v", err)
	}
	if _, err := a.Listen(t.Context(), s.ID, guest.ListenRequest{Network: "udp"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("on udp: %v", err)
	}
	l, err := a.Listen(t.Context(), s.ID, r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inside, err := a.Dial(t.Context(), s.ID, "unix", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	st, _, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()

	// Bytes of its connections keep a sandbox from being idle.
	for range 3 {
		w.reapAfter(50 * time.Second)
		w.status(s.ID, sandbox.Idle)
		if _, err := io.WriteString(inside, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}

	// The end of the sandbox is the end of it all.
	if err := a.Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Accept(t.Context()); !errors.Is(err, guest.ErrLost) {
		t.Errorf("in a sandbox that is gone: %v", err)
	}
	if _, err := a.Listen(t.Context(), s.ID, r); err == nil {
		t.Error("a sandbox that is gone is listened in")
	}
}
