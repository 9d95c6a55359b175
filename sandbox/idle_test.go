package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func TestIdleTimeout(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Idle: time.Minute}})
	stays := w.create(alice, sandbox.CreateRequest{})
	p, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"cat"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Hour)
	w.engine.ReapIdle(t.Context())
	w.status(s.ID, sandbox.Idle) // a shell is open
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.engine.ReapIdle(t.Context())
	w.status(s.ID, sandbox.Idle) // it ended only now
	w.now.advance(2 * time.Minute)
	w.engine.ReapIdle(t.Context())
	if got := w.status(s.ID, sandbox.Terminated); !strings.Contains(got.StatusReason, "idle for 1m") {
		t.Errorf("reason %q", got.StatusReason)
	}
	w.status(stays.ID, sandbox.Idle)
}

// A server that has just come does not know what happened while none looked.
func TestIdleTimeoutAfterRestart(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Idle: time.Minute}})
	if _, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"sleep", "1000"}}, guest.Output{}); err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Hour)
	w.restart()
	w.engine.ReapIdle(t.Context())
	w.status(s.ID, sandbox.Idle)
	w.now.advance(time.Hour)
	w.engine.ReapIdle(t.Context())
	w.status(s.ID, sandbox.Idle) // the command of the earlier server runs on
}
