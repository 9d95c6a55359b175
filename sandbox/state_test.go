package sandbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

var allStatuses = []sandbox.Status{
	sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Stopping,
	sandbox.Suspended, sandbox.Terminated, sandbox.Failed, sandbox.Deleted,
}

// The table names every status, and nothing comes back from the dead.
func TestTransitionsAreWhole(t *testing.T) {
	if len(sandbox.Transitions) != len(allStatuses) {
		t.Errorf("the table has %d statuses", len(sandbox.Transitions))
	}
	for _, from := range allStatuses {
		next, ok := sandbox.Transitions[from]
		if !ok {
			t.Errorf("%s is not in the table", from)
		}
		for _, to := range next {
			if !slices.Contains(allStatuses, to) {
				t.Errorf("%s leads to %q", from, to)
			}
			if !from.Live() && to.Live() && to != sandbox.Stopping {
				t.Errorf("%s comes back to life as %s", from, to)
			}
		}
	}
}

// inStatus makes a sandbox that has the status; release lets go on what keeps it
// there.
func (w *world) inStatus(status sandbox.Status) (id string, release func()) {
	w.t.Helper()
	a := w.engine.As(alice)
	release = func() {}
	behind := func(op fake.Op, do func()) {
		gate := w.host.Hold(op)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			do()
		}()
		<-gate.Entered()
		release = func() {
			gate.Open()
			<-gone
		}
	}
	switch status {
	case sandbox.Creating:
		behind(fake.Start, func() { _, _ = a.Create(w.t.Context(), sandbox.CreateRequest{}) })
		all, _, err := a.List(w.t.Context(), sandbox.ListRequest{})
		must(w.t, err)
		return all[0].ID, release
	case sandbox.Failed:
		w.host.FailNext(fake.Create, fault.New(fault.Unavailable, "no"))
		_, err := a.Create(w.t.Context(), sandbox.CreateRequest{})
		wantCode(w.t, err, fault.Unavailable)
		all, _, err := a.List(w.t.Context(), sandbox.ListRequest{})
		must(w.t, err)
		return all[0].ID, release
	}
	s := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Idle: time.Minute}})
	switch status {
	case sandbox.Running:
		_, err := a.Execute(w.t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "1000"}})
		must(w.t, err)
	case sandbox.Paused:
		w.pause(s.ID)
	case sandbox.Suspended:
		w.host.Kill(s.ID)
	case sandbox.Stopping:
		behind(fake.Remove, func() { _ = a.Delete(w.t.Context(), s.ID) })
	case sandbox.Terminated:
		w.reapAfter(time.Hour)
	case sandbox.Deleted:
		must(w.t, a.Delete(w.t.Context(), s.ID))
	}
	w.status(s.ID, status)
	return s.ID, release
}

// Every operation in every state: it works, or it says which state it is in and
// changes nothing. A dash is a wait for the state to change.
func TestEveryOperationInEveryState(t *testing.T) {
	const ok, state, busy, waits = "", string(fault.State), string(fault.Busy), "-"
	text := "new"
	type do = func(ctx context.Context, a *sandbox.Actor, id string) error
	operations := map[string]struct {
		do do
		// in the order of allStatuses
		want [9]string
	}{
		"get": {func(ctx context.Context, a *sandbox.Actor, id string) error { _, err := a.Get(ctx, id); return err },
			[9]string{ok, ok, ok, ok, ok, ok, ok, ok, ok}},
		"pause": {func(ctx context.Context, a *sandbox.Actor, id string) error { _, err := a.Pause(ctx, id); return err },
			[9]string{state, ok, ok, ok, state, state, state, state, state}},
		"resume": {func(ctx context.Context, a *sandbox.Actor, id string) error { _, err := a.Resume(ctx, id); return err },
			[9]string{waits, ok, ok, ok, state, ok, state, state, state}},
		"execute": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			_, err := a.Execute(ctx, id, sandbox.ExecRequest{Command: []string{"true"}})
			return err
		}, [9]string{waits, ok, busy, ok, state, ok, state, state, state}},
		"job": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			_, err := a.CreateJob(ctx, id, sandbox.JobRequest{Command: []string{"true"}})
			return err
		}, [9]string{waits, ok, ok, ok, state, ok, state, state, state}},
		"start": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			p, err := a.Start(ctx, id, guest.Command{Args: []string{"true"}}, guest.Output{})
			if err == nil {
				_, err = p.Wait(ctx)
			}
			return err
		}, [9]string{waits, ok, ok, ok, state, ok, state, state, state}},
		"write": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			return a.WriteFile(ctx, id, sandbox.File{Path: "a"})
		}, [9]string{waits, ok, ok, ok, state, ok, state, state, state}},
		"update": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			_, err := a.Update(ctx, id, sandbox.UpdateRequest{Description: &text})
			return err
		}, [9]string{waits, ok, ok, ok, state, ok, state, state, state}},
		"env": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			_, err := a.SetEnv(ctx, id, map[string]*string{"A": &text})
			return err
		}, [9]string{ok, ok, ok, ok, state, ok, state, state, state}},
		"countdown": {func(ctx context.Context, a *sandbox.Actor, id string) error {
			_, _, err := a.Countdown(ctx, id)
			return err
		}, [9]string{ok, ok, ok, ok, ok, ok, ok, ok, ok}},
		"usage": {func(ctx context.Context, a *sandbox.Actor, id string) error { _, err := a.Usage(ctx, id); return err },
			[9]string{ok, ok, ok, ok, ok, ok, ok, ok, ok}},
		"delete": {func(ctx context.Context, a *sandbox.Actor, id string) error { return a.Delete(ctx, id) },
			[9]string{ok, ok, ok, ok, waits, ok, ok, ok, ok}},
	}
	for name, op := range operations {
		for i, status := range allStatuses {
			t.Run(name+" in "+string(status), func(t *testing.T) {
				t.Parallel() // most of it is waiting for the disk
				w := newWorld(t)
				id, release := w.inStatus(status)
				defer release()
				ctx := t.Context()
				if op.want[i] == waits {
					// Long enough for whoever does not wait.
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
					defer cancel()
				}
				err := op.do(ctx, w.engine.As(alice), id)
				want := op.want[i]
				if want == waits {
					want = string(fault.Timeout)
				}
				if got := string(fault.CodeOf(err)); got != want {
					t.Fatalf("error %v has code %q, want %q", err, got, want)
				}
				if want == state && !strings.Contains(err.Error(), string(status)) {
					t.Errorf("the error does not say that it is %s: %v", status, err)
				}
				if want == state || want == busy {
					if s, err := w.engine.As(alice).Get(t.Context(), id); err != nil || s.Status != status {
						t.Errorf("now it is %s, %v", s.Status, err)
					}
				}
				if name == "pause" && want == state && status != sandbox.Paused && !strings.Contains(err.Error(), "cannot become paused") {
					t.Errorf("the error does not name both states: %v", err)
				}
			})
		}
	}
}

// A sandbox that has died for good is no place to resume.
func TestResumeOfFailedSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.unsupported = map[string]string{driver.FeatureDurableFiles: "not here"}
	w.restart()
	s := w.create(alice, sandbox.CreateRequest{})
	w.host.OOM(s.ID)
	w.status(s.ID, sandbox.Failed)
	_, err := w.engine.As(alice).Resume(t.Context(), s.ID)
	if !fault.Is(err, fault.State) || !strings.Contains(err.Error(), "failed") || !strings.Contains(err.Error(), "memory") {
		t.Errorf("resume: %v", err)
	}
}
