package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
)

// The sandbox of a run goes when its caller is gone, and not before.
func TestRunWhoseCallerDies(t *testing.T) {
	const grace = 100 * time.Millisecond
	w := newWorld(t, func(c *sandbox.Config) { c.AttendGrace = grace })
	a := w.engine.As(alice)
	run := sandbox.CreateRequest{Mode: sandbox.Oneshot, Command: []string{"sleep", "1000"}, Attended: true}
	made, err := a.Create(t.Context(), run)
	must(t, err)
	// Longer than the grace, with two who are there.
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = a.Output(ctx, made.Execution.ID, sandbox.Stdout, &counter{})
	}()
	x, err := a.Execution(t.Context(), made.Execution.ID, 3*grace)
	if err != nil || x.Status != sandbox.ExecRunning {
		t.Fatalf("while it is attended: %+v, %v", x, err)
	}
	leave()
	<-left
	w.status(made.Sandbox.ID, sandbox.Terminated)
	if x, err = a.Execution(t.Context(), x.ID, 0); err != nil || x.Status != sandbox.ExecCancelled {
		t.Errorf("it ended %+v, %v", x, err)
	}

	never, err := a.Create(t.Context(), run) // its caller died before it could attend
	must(t, err)
	w.status(never.Sandbox.ID, sandbox.Terminated)
	run.Attended = false
	alone, err := a.Create(t.Context(), run)
	must(t, err)
	x, err = a.Execution(t.Context(), alone.Execution.ID, 3*grace)
	if err != nil || x.Status != sandbox.ExecRunning {
		t.Errorf("one that needs nobody: %+v, %v", x, err)
	}
	must(t, a.Delete(t.Context(), alone.Sandbox.ID))
	if list, err := fake.New(fake.Config{Host: w.host}).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the driver still has %v, %v", list, err)
	}
}
