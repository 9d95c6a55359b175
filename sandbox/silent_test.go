package sandbox_test

import (
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// unreachable makes the host answer nobody who connects, for a number of times.
func (w *world) unreachable(times int) {
	for n := range times {
		w.host.FailNth(fake.Dial, n+1, fault.New(fault.Unavailable, "the sandbox does not answer"))
	}
}

// A host may have no time for a sandbox, so that nothing in it answers for a
// while. What runs in it goes on, and its record says so.
func TestSilentSandboxKeepsItsCommands(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	j := w.job(s.ID, "sh", "-c", "until [ -e done ]; do sleep 0.01; done; echo job; exit 3")
	before := w.host.Calls(fake.Dial)
	w.unreachable(5)
	w.host.DropStreams(s.ID)
	w.dialled(before + 6)
	w.wentOn(x)
	w.shell(s.ID, ": >done")
	if j = w.ended(j.ID); j.Status != sandbox.JobFailed || j.ExitCode == nil || *j.ExitCode != 3 {
		t.Errorf("the job ended %+v", j)
	}
}

// Neither does a server that starts meanwhile give them up.
func TestStartBesideSilentSandbox(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	j := w.job(s.ID, "sh", "-c", "until [ -e done ]; do sleep 0.01; done")
	w.close()
	before := w.host.Calls(fake.Dial)
	w.unreachable(3)
	if found := w.open(); found.Executions != 1 || found.Jobs != 1 {
		t.Errorf("found %+v", found)
	}
	w.dialled(before + 4)
	w.wentOn(x)
	w.shell(s.ID, ": >done")
	if j = w.ended(j.ID); j.Status != sandbox.JobCompleted {
		t.Errorf("the job ended %+v", j)
	}
}

// dialled waits until somebody has connected so often.
func (w *world) dialled(times int) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); w.host.Calls(fake.Dial) < times; {
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("connected %d times, not %d", w.host.Calls(fake.Dial), times)
		}
	}
}

// Nobody waits long for what a sandbox uses that does not tell.
func TestUsageOfSilentSandbox(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	gate := w.host.Hold(fake.Use)
	defer gate.Open()
	if _, err := w.engine.As(alice).Usage(t.Context(), s.ID); !fault.Is(err, fault.Unavailable) {
		t.Errorf("what it uses: %v", err)
	}
}
