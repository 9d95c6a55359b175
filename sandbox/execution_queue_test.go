package sandbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// queue queues a command, or fails the test.
func (w *world) queue(ref string, args ...string) sandbox.Execution {
	w.t.Helper()
	x, err := w.engine.As(alice).Execute(w.t.Context(), ref, sandbox.ExecRequest{Command: args, Queue: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func (w *world) execEnded(id string) sandbox.Execution {
	w.t.Helper()
	x, err := w.engine.As(alice).Execution(w.t.Context(), id, time.Minute)
	if err != nil || !x.Status.Done() {
		w.t.Fatalf("execution %+v, %v", x, err)
	}
	return x
}

// What is queued runs one at a time, in the order in which it came, with its
// files and its time counted from its turn.
func TestQueue(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.MaxQueued = 4 })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	first := w.queue(s.ID, "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; echo first >>log")
	if first.Status != sandbox.ExecRunning {
		t.Fatalf("nobody was before it: %+v", first)
	}
	var queued []sandbox.Execution
	for i := range 4 {
		x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{
			Queue: true, Command: []string{"sh", "-c", fmt.Sprintf("cat name >>log; rm name; exit %d", i)}, Timeout: 20 * time.Second,
			Files: []sandbox.File{{Path: "name", Content: fmt.Appendln(nil, i)}},
		})
		if err != nil || x.Status != sandbox.ExecQueued || !x.StartedAt.IsZero() {
			t.Fatalf("queued %+v, %v", x, err)
		}
		queued = append(queued, x)
	}
	_, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}, Queue: true})
	wantCode(t, err, fault.Exhausted)
	_, err = a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}})
	wantCode(t, err, fault.Busy)
	if err := a.Cancel(t.Context(), queued[1].ID); err != nil {
		t.Fatal(err)
	}
	if x := w.execEnded(queued[1].ID); x.Status != sandbox.ExecCancelled || x.Error != "cancelled before its turn" || x.ExitCode != nil {
		t.Errorf("cancelled %+v", x)
	}
	w.status(s.ID, sandbox.Running)
	if err := a.WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2, 3} {
		if x := w.execEnded(queued[i].ID); x.ExitCode == nil || *x.ExitCode != i || x.StartedAt.IsZero() {
			t.Errorf("execution %d: %+v", i, x)
		}
	}
	w.status(s.ID, sandbox.Idle)
	if _, out := w.exec(alice, s.ID, "cat", "log"); out != "first\n0\n2\n3\n" {
		t.Errorf("ran in the order %q", out)
	}
	events := strings.Join(w.events(s.ID), " ")
	if n := strings.Count(events, "execution:queued"); n != 4 {
		t.Errorf("events %s", events)
	}
	history, total, err := a.ExecutionHistory(t.Context(), s.ID, 2, 1)
	if err != nil || total != 6 || len(history) != 2 || history[0].ID != queued[3].ID {
		t.Errorf("history %+v of %d, %v", history, total, err)
	}
}

// What is queued ends with the server, and says so; what runs goes on.
func TestQueueEndsWithTheServer(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	first := w.queue(s.ID, "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done")
	second := w.queue(s.ID, "touch", "second")
	if r := w.restart(); r.Executions != 1 {
		t.Fatalf("found again: %+v", r)
	}
	if x := w.execEnded(second.ID); x.Status != sandbox.ExecCancelled || !strings.Contains(x.Error, "server") {
		t.Errorf("queued %+v", x)
	}
	third := w.queue(s.ID, "sh", "-c", "ls")
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	w.execEnded(first.ID)
	w.execEnded(third.ID)
	if out := w.output(alice, third.ID, sandbox.Stdout); out != "go\n" {
		t.Errorf("there is %q", out)
	}
}

// What is queued ends with its sandbox.
func TestQueueEndsWithTheSandbox(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	ids := []string{w.queue(s.ID, "sleep", "1000").ID, w.queue(s.ID, "true").ID, w.queue(s.ID, "true").ID}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if x := w.execEnded(id); x.Status != sandbox.ExecCancelled {
			t.Errorf("%+v", x)
		}
	}
	if events := w.events(s.ID); slices.Index(events, "destroy") != len(events)-1 {
		t.Errorf("events %v", events)
	}
}

// A queued command that cannot start fails and lets the next one run.
func TestQueueGoesOnAfterAFailure(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	first := w.queue(s.ID, "sleep", "1000")
	bad, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}, Dir: "/no/such/folder", Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	last := w.queue(s.ID, "true")
	if err := w.engine.As(alice).Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if x := w.execEnded(bad.ID); x.Status != sandbox.ExecFailed || !strings.Contains(x.Error, "/no/such/folder") {
		t.Errorf("%+v", x)
	}
	if x := w.execEnded(last.ID); x.Status != sandbox.ExecCompleted {
		t.Errorf("%+v", x)
	}
}
