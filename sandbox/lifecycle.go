package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Get returns one sandbox.
func (a *Actor) Get(ctx context.Context, ref string) (Sandbox, error) {
	s, err := a.resolve(ctx, ref, "Get")
	return a.shownSandbox(s), err
}

// List returns the sandboxes the actor may see.
func (a *Actor) List(ctx context.Context, r ListRequest) ([]Sandbox, int, error) {
	switch {
	case r.Limit == 0:
		r.Limit = 50
	case r.Limit < 0 || r.Limit > 100:
		return nil, 0, fault.InvalidField("limit", "must be 1 to 100")
	}
	if r.Offset < 0 {
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	}
	for _, s := range r.Status {
		if _, ok := Transitions[s]; !ok {
			return nil, 0, fault.InvalidField("status", "%q is not a status: use creating, idle, running, paused, stopping, suspended, terminated, failed or deleted", clip(string(s), 32))
		}
	}
	if r.Mode != "" && r.Mode != Oneshot && r.Mode != Interactive {
		return nil, 0, fault.InvalidField("mode", "%q is not a mode: use oneshot or interactive", clip(string(r.Mode), 32))
	}
	if sorts := []string{"", "name", "created", "updated", "status", "mode", "execution_count"}; !slices.Contains(sorts, r.SortBy) {
		return nil, 0, fault.InvalidField("sort", "%q is not a field to sort by: use name, created, updated, status, mode or execution_count", clip(r.SortBy, 32))
	}
	f := SandboxFilter{
		Name: r.Name, Statuses: r.Status, Mode: r.Mode, Project: r.Project, LiveOnly: r.LiveOnly,
		SortBy: r.SortBy, Asc: r.Asc, Limit: r.Limit, Offset: r.Offset,
	}
	if len(f.Statuses) == 0 && !f.LiveOnly {
		// What has ended as it should is history, not inventory.
		f.Statuses = []Status{Creating, Idle, Running, Paused, Stopping, Suspended, Failed}
	}
	if !a.who.IsAdmin() && a.who.ID == "" {
		return nil, 0, nil
	}
	var err error
	if f.Owner, f.Seen, err = a.seen(ctx); err != nil {
		return nil, 0, err
	}
	page, total, err := a.e.cfg.Store.Sandboxes(ctx, f)
	for i := range page {
		page[i] = a.shownSandbox(page[i])
	}
	return page, total, err
}

// Delete destroys a sandbox.
func (a *Actor) Delete(ctx context.Context, ref string) error {
	s, err := a.resolve(ctx, ref, "Delete")
	if err != nil {
		return err
	}
	if !a.who.IsAdmin() && s.Owner != a.who.ID {
		return fault.New(fault.Denied, "sandbox %s is %s's: the project %s may use it, its owner and admins delete it", s.ID, clip(s.Owner, 64), s.Project).About("sandbox")
	}
	if s.Status == Terminated || s.Status == Deleted {
		a.e.forgetOutput(ctx, s.ID)
		return nil
	}
	if err := a.e.mine(&s); err != nil {
		return err
	}
	return a.e.destroy(ctx, s.ID, Deleted, "", a.who.ID)
}

// WaitStatus waits for a status.
func (a *Actor) WaitStatus(ctx context.Context, ref string, want ...Status) (Sandbox, error) {
	// The waiting is bounded by ctx, the looking is not: the end of a short wait
	// is an answer, and the same one for a foreigner as for a missing sandbox.
	s, err := a.resolve(context.WithoutCancel(ctx), ref, "WaitStatus")
	if err != nil {
		return s, err
	}
	for {
		changed := a.e.pulse.next()
		now, err := a.e.cfg.Store.Sandbox(context.WithoutCancel(ctx), s.ID)
		if err != nil {
			return s, err
		}
		s = now
		if slices.Contains(want, s.Status) || !s.Status.Live() {
			return a.shownSandbox(s), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return a.shownSandbox(s), nil
		}
	}
}

// Events returns the events of a sandbox in order.
func (a *Actor) Events(ctx context.Context, ref string, afterSeq int64, limit int) ([]Event, error) {
	s, err := a.resolve(ctx, ref, "Events")
	if err != nil {
		return nil, err
	}
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	return a.e.cfg.Store.Events(ctx, s.ID, afterSeq, limit)
}

// Runtimes lists the runtimes of this server.
func (a *Actor) Runtimes(ctx context.Context) ([]Runtime, error) {
	return a.e.cfg.Images.Runtimes(ctx)
}

// cleanupTime bounds work that must be finished although the caller is gone.
func (e *Engine) cleanupTime() time.Duration { return 60*time.Second + e.cfg.StopGrace }

// destroy ends a sandbox and removes all of it but its record. Once begun it
// is finished even if the caller gives up.
func (e *Engine) destroy(ctx context.Context, id string, final Status, reason, by string) error {
	e.mu.Lock()
	if cancel := e.creating[id]; cancel != nil {
		cancel() // frees the lock soon
	}
	e.mu.Unlock()
	unlock, err := e.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return e.destroyLocked(ctx, id, final, reason, by)
}

func (e *Engine) destroyLocked(ctx context.Context, id string, final Status, reason, by string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cleanupTime())
	defer cancel()
	gone, was := false, Sandbox{}
	_, err := e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		if gone = s.Status == Deleted || s.Status == Terminated; gone {
			return nil, nil
		}
		was = *s
		return nil, s.moveTo(Stopping, reason)
	})
	if fault.Is(err, fault.Exhausted) && final != Failed {
		// The disk is full, and to remove what nobody wants is what makes room.
		was, err = e.cfg.Store.Sandbox(ctx, id)
		gone = was.Status == Deleted || was.Status == Terminated
	}
	if err != nil || gone {
		return err
	}
	e.lastSample(ctx, &was)
	e.endExecutions(ctx, id, "the sandbox was deleted", ExecCancelled)
	if e.cfg.StopGrace > 0 {
		if err := e.cfg.Driver.Stop(ctx, id, e.cfg.StopGrace); err != nil && !fault.Is(err, fault.NotFound) {
			e.cfg.Log.Warn("stop sandbox", "sandbox", id, "err", err)
		}
	}
	e.conns.drop(id)
	if err := e.cfg.Driver.Remove(ctx, id); err != nil {
		return err
	}
	if final == Deleted {
		e.forgetOutput(ctx, id)
	}
	typ, data := EventDestroy, map[string]any{}
	switch final {
	case Failed:
		typ = EventLifecycleFailed
	case Terminated:
		typ = EventLifecycleTerminated
	}
	if reason != "" {
		data["reason"] = reason
	}
	s, err := e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		s.EndedAt = e.cfg.Now()
		if err := s.moveTo(Stopping, reason); err != nil {
			return nil, err
		}
		return []Event{e.event(id, typ, by, data)}, s.moveTo(final, reason)
	})
	if err == nil {
		e.dropSaved(ctx, s)
	}
	e.meters.forget(id)
	e.mu.Lock()
	delete(e.activity, id)
	e.mu.Unlock()
	return err
}

// watch follows a running sandbox in the background and records it when the
// sandbox ends by itself. It does nothing when the sandbox is watched already.
func (e *Engine) watch(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watched[id] {
		return
	}
	e.watched[id] = true
	e.background(func(ctx context.Context) {
		st, err := e.cfg.Driver.Wait(ctx, id)
		e.mu.Lock()
		delete(e.watched, id)
		e.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case fault.Is(err, fault.NotFound):
			st = driver.Status{State: driver.Broken}
		case err != nil:
			e.cfg.Log.Error("watch sandbox", "sandbox", id, "err", err)
			return
		}
		e.ended(ctx, id, st)
	})
}

// watchAgain follows a sandbox whose end the store did not take.
func (e *Engine) watchAgain(id string) {
	e.background(func(ctx context.Context) {
		select {
		case <-time.After(storeRetry):
			e.watch(id)
		case <-ctx.Done():
		}
	})
}

// ended records that a sandbox stopped without being asked to.
func (e *Engine) ended(ctx context.Context, id string, st driver.Status) {
	unlock, err := e.locks.lock(ctx, id)
	if err != nil {
		return
	}
	defer unlock()
	// Whoever held the lock may have stopped or started it on purpose.
	if now, err := e.cfg.Driver.Inspect(ctx, id); err == nil {
		if now.State == driver.Running {
			e.watch(id)
			return
		}
		st = now
	}
	next, reason, typ := Suspended, st.Exit.Reason, EventLifecycleSuspended
	if st.State != driver.Stopped || !e.caps.Support[driver.FeatureDurableFiles].OK {
		next, typ = Failed, EventLifecycleFailed
		if reason == "" {
			reason = "it ended and its files are gone"
		}
	}
	if reason == "" {
		reason = "it stopped by itself"
	}
	if s, err := e.cfg.Store.Sandbox(ctx, id); ctx.Err() != nil || err == nil && !s.Status.Up() {
		return // it was stopped on purpose, or is for the next server to find
	}
	e.conns.drop(id)
	onPurpose := false
	_, err = e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		if onPurpose = !s.Status.Up(); onPurpose {
			return nil, nil
		}
		if next == Failed {
			s.EndedAt = e.cfg.Now()
		}
		return []Event{e.event(id, typ, "system", map[string]any{"reason": reason, "oom": st.Exit.OOM})}, s.moveTo(next, reason)
	})
	if err != nil {
		e.cfg.Log.Error("record the end of a sandbox; trying on", "sandbox", id, "err", err)
		e.watchAgain(id)
		return
	}
	if onPurpose {
		return // what was paused with it is not lost
	}
	e.endExecutions(ctx, id, "the sandbox ended: "+reason, ExecFailed)
	e.cfg.Log.Warn("sandbox ended", "sandbox", id, "status", next, "reason", reason)
}
