package sandbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func TestSandboxDiesOfMemory(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	neighbour := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	w.host.OOM(s.ID)
	s = w.status(s.ID, sandbox.Suspended)
	if !strings.Contains(s.StatusReason, "memory") {
		t.Errorf("reason %q", s.StatusReason)
	}
	if got := w.events(s.ID); !slices.Contains(got, "lifecycle:suspended") {
		t.Errorf("events %v", got)
	}
	if x, err = a.Execution(t.Context(), x.ID, time.Minute); err != nil || x.Status != sandbox.ExecFailed {
		t.Errorf("execution %+v, %v", x, err)
	}
	// Its files are not lost: the next use starts it again.
	if x, _ := w.exec(alice, s.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("after waking: %+v", x)
	}
	if x, _ := w.exec(alice, neighbour.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("the neighbour's command: %+v", x)
	}
}

// A sandbox that stopped by itself starts again when somebody uses it.
func TestStoppedSandboxWakes(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Files: []sandbox.File{{Path: "kept", Content: []byte("yes")}}})
	w.host.Kill(s.ID)
	w.status(s.ID, sandbox.Suspended)
	if _, out := w.exec(alice, s.ID, "cat", "kept"); out != "yes" {
		t.Fatalf("after waking: %q", out)
	}
	w.status(s.ID, sandbox.Idle)
}

// Where files do not survive, a sandbox that dies has failed, and says why.
func TestSandboxDiesForGood(t *testing.T) {
	w := newWorld(t)
	w.unsupported = map[string]string{driver.FeatureDurableFiles: "not here"}
	w.restart()
	s := w.create(alice, sandbox.CreateRequest{})
	w.host.OOM(s.ID)
	if s = w.status(s.ID, sandbox.Failed); !strings.Contains(s.StatusReason, "memory") {
		t.Errorf("reason %q", s.StatusReason)
	}
	_, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"true"}}, guest.Output{})
	wantCode(t, err, fault.State)
	if !strings.Contains(err.Error(), "memory") {
		t.Errorf("start in it says %q", err)
	}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
}
