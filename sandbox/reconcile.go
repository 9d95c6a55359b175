package sandbox

import (
	"context"
	"maps"
	"slices"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Reconciliation says what Reconcile found.
type Reconciliation struct {
	Adopted    int      // sandboxes that run on as they were
	Paused     int      // paused, as they were or by a server that ended meanwhile
	Suspended  int      // stopped, files kept
	Lost       int      // recorded as failed
	Removed    int      // found on the host without a record
	Elsewhere  int      // of another engine, left alone
	Executions int      // commands that run on
	Jobs       int      // jobs that run on
	Sessions   int      // sessions that go on
	Leftovers  []string // cleaned from the host, a line each

	silent map[string]bool // sandboxes that run and did not answer
}

// Reconcile makes the records and the host agree after a start: call it once,
// before anything else. Running sandboxes and their commands go on untouched;
// what was half-made or half-removed is removed; what no record knows is
// removed.
func (e *Engine) Reconcile(ctx context.Context) (Reconciliation, error) {
	var r Reconciliation
	found, err := e.cfg.Driver.List(ctx)
	if err != nil {
		return r, err
	}
	onHost := map[string]driver.Status{}
	for _, st := range found {
		onHost[st.ID] = st
	}
	live, _, err := e.cfg.Store.Sandboxes(ctx, SandboxFilter{LiveOnly: true, Asc: true})
	if err != nil {
		return r, err
	}
	for _, s := range live {
		if s.Driver != e.cfg.Driver.Name() {
			r.Elsewhere++
			continue
		}
		if err := e.reconcileOne(ctx, s, onHost, &r); err != nil {
			e.cfg.Log.Error("reconcile sandbox", "sandbox", s.ID, "err", err, "cause", fault.From(err).Cause)
			if s.Status.Up() {
				e.watchAgain(s.ID)
			}
		}
		delete(onHost, s.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(onHost)) {
		s, err := e.cfg.Store.Sandbox(ctx, id)
		if err == nil && s.Status == Failed && onHost[id].State == driver.Stopped {
			continue // its files stay until its owner deletes it
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return r, err
		}
		e.cfg.Log.Warn("remove a sandbox without a record", "sandbox", id, "state", onHost[id].State)
		if err := e.cfg.Driver.Remove(ctx, id); err != nil {
			e.cfg.Log.Error("remove a sandbox without a record", "sandbox", id, "err", err)
			continue
		}
		r.Removed++
	}
	e.reconcileExecutions(ctx, &r)
	e.reconcileSessions(ctx, &r)
	e.reconcileOneshots(ctx)
	e.recordings.reconcile(ctx)
	if err := e.reconcileLayers(ctx); err != nil {
		e.cfg.Log.Error("reconcile saved layers", "err", err)
	}
	if c, ok := e.cfg.Driver.(driver.Cleaner); ok {
		if r.Leftovers, err = c.Leftovers(ctx, true); err != nil {
			e.cfg.Log.Error("clean what a crash left on the host", "err", err)
		}
	}
	return r, nil
}

// reconcileOne settles one sandbox whose record says it exists.
func (e *Engine) reconcileOne(ctx context.Context, s Sandbox, onHost map[string]driver.Status, r *Reconciliation) error {
	st, there := onHost[s.ID]
	switch {
	case s.Status == Creating:
		r.Lost++
		return e.destroyAs(ctx, s, Failed, "the server stopped while it was being made")
	case s.Status == Stopping:
		r.Removed++
		return e.destroyAs(ctx, s, Deleted, s.StatusReason)
	case s.Mode == Oneshot && (!there || st.State != driver.Running):
		r.Lost++
		return e.destroyAs(ctx, s, Failed, "it ended while the server was away")
	case there && st.State == driver.Running:
		r.Adopted++
		return e.reconcileUp(ctx, s)
	case there && st.State != driver.Broken && s.Status == Paused:
		r.Paused++
		return e.reconcilePaused(ctx, s, st)
	case there && st.State != driver.Broken && s.Status == Suspended:
		r.Suspended++
		return nil
	case there && st.State == driver.Stopped && st.Memory:
		// The server ended between the pause and the note of it.
		r.Paused++
		return e.reconcileHalfPaused(ctx, s)
	case there && st.State != driver.Broken && e.caps.Support[driver.FeatureDurableFiles].OK:
		r.Suspended++
		return e.reconcileStopped(ctx, s, st)
	}
	r.Lost++
	reason := "it is gone from the host"
	if st.Exit.Reason != "" {
		reason = st.Exit.Reason
	}
	if there && !st.Exit.OOM {
		return e.destroyAs(ctx, s, Failed, reason)
	}
	e.endExecutions(ctx, s.ID, reason, ExecFailed)
	_, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		s.EndedAt = e.cfg.Now()
		return []Event{e.event(s.ID, EventLifecycleFailed, "system", map[string]any{"reason": reason, "oom": st.Exit.OOM})}, s.moveTo(Failed, reason)
	})
	return err
}

// reconcileUp takes up a sandbox that runs.
func (e *Engine) reconcileUp(ctx context.Context, s Sandbox) error {
	// Whoever enforces the rules may have been away too.
	if err := e.allowNetwork(ctx, &s); err != nil {
		e.cfg.Log.Error("set what a sandbox may reach", "sandbox", s.ID, "err", err)
	} else if s.Network != nil {
		// Of a running one this only connects it again, where that was lost.
		if err := e.cfg.Driver.Start(ctx, s.ID); err != nil {
			e.cfg.Log.Error("connect a sandbox again", "sandbox", s.ID, "err", err)
		}
	}
	// The server may have ended between a change of the limits and the note of
	// it. The record is what was answered.
	if s.Limits != (Limits{}) && e.caps.Support[driver.FeatureResize].OK {
		if err := e.resize(ctx, s.ID, s.Limits); err != nil {
			e.cfg.Log.Error("set the limits of a sandbox again", "sandbox", s.ID, "err", err)
		}
	}
	if !s.Status.Up() {
		// The server ended between a resume and the note of it.
		_, err := e.markUp(ctx, &s, "system", map[string]any{"why": "the server stopped while it was being resumed"})
		return err
	}
	e.touch(s.ID) // what happened in it while no server looked is not known
	e.watch(s.ID)
	return nil
}

// reconcilePaused takes up a sandbox that is paused. Its processes may be lost
// by now: where the server ended in the middle of a resume, for one.
func (e *Engine) reconcilePaused(ctx context.Context, s Sandbox, st driver.Status) error {
	if s.Memory && !st.Memory {
		if _, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) { s.Memory = false; return nil, nil }); err != nil {
			return err
		}
	}
	if !st.Memory {
		e.endExecutions(ctx, s.ID, "the sandbox was paused", ExecFailed)
	}
	return nil
}

// reconcileHalfPaused records a pause that no record knows of.
func (e *Engine) reconcileHalfPaused(ctx context.Context, s Sandbox) error {
	_, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		s.PausedAt, s.Memory = e.cfg.Now(), true
		s.setTerminatesAt()
		data := map[string]any{"memory": true, "why": "the server stopped while it was being paused"}
		return []Event{e.event(s.ID, EventPause, "system", data)}, s.moveTo(Paused, "")
	})
	return err
}

// reconcileStopped records that a sandbox has stopped while no server looked.
func (e *Engine) reconcileStopped(ctx context.Context, s Sandbox, st driver.Status) error {
	reason := st.Exit.Reason
	if reason == "" {
		reason = "it stopped while the server was away"
	}
	e.endExecutions(ctx, s.ID, "the sandbox stopped", ExecFailed)
	_, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		return []Event{e.event(s.ID, EventLifecycleSuspended, "system", map[string]any{"reason": reason, "oom": st.Exit.OOM})}, s.moveTo(Suspended, reason)
	})
	return err
}

// destroyAs removes a sandbox on behalf of the system.
func (e *Engine) destroyAs(ctx context.Context, s Sandbox, final Status, reason string) error {
	return e.destroy(ctx, s.ID, final, reason, "system")
}
