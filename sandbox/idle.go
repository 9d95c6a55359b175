package sandbox

import (
	"context"
	"time"
)

// activity is what keeps a sandbox from being idle.
type activity struct {
	open int       // processes, executions and connections under way
	last time.Time // when the last one ended
}

// begin notes that something is under way in a sandbox; the returned func,
// called once, notes that it has ended.
func (e *Engine) begin(id string) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.activityOf(id)
	a.open++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		a.open--
		a.last = e.cfg.Now()
	}
}

// activityOf returns the entry of a sandbox. The caller holds mu.
func (e *Engine) activityOf(id string) *activity {
	a := e.activity[id]
	if a == nil {
		a = &activity{}
		e.activity[id] = a
	}
	return a
}

// touch starts the idle time of a sandbox anew.
func (e *Engine) touch(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.activityOf(id).last = e.cfg.Now()
}

// idleFor is how long nothing was under way in a sandbox, as far as this
// server has seen.
func (e *Engine) idleFor(s *Sandbox) time.Duration {
	now, last := e.cfg.Now(), s.ActiveAt
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.activity[s.ID]; a != nil {
		if a.open > 0 {
			return 0
		}
		if a.last.After(last) {
			last = a.last
		}
	}
	return now.Sub(last)
}

// ReapIdle ends the sandboxes whose idle timeout has passed. Run does so every
// few seconds.
func (e *Engine) ReapIdle(ctx context.Context) {
	list, _, err := e.cfg.Store.Sandboxes(ctx, SandboxFilter{Statuses: []Status{Idle}})
	if err != nil {
		e.cfg.Log.Warn("list idle sandboxes", "err", err)
		return
	}
	for _, s := range list {
		if s.Driver != e.cfg.Driver.Name() || s.Timeouts.Idle <= 0 || e.idleFor(&s) < s.Timeouts.Idle {
			continue
		}
		if err := e.reap(ctx, s); err != nil {
			e.cfg.Log.Warn("end idle sandbox", "sandbox", s.ID, "err", err)
		}
	}
}

// reap ends one sandbox that looks idle, having asked its guest: processes that
// an earlier server started, or whose client is gone, run there without anybody
// here knowing.
func (e *Engine) reap(ctx context.Context, s Sandbox) error {
	unlock, err := e.locks.lock(ctx, s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	conn, err := e.conns.get(ctx, s.ID)
	if err != nil {
		return err // it does not answer: not a reason to delete somebody's files
	}
	running, err := conn.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range running {
		if !p.Exited {
			e.touch(s.ID)
			return nil
		}
	}
	if e.idleFor(&s) < s.Timeouts.Idle {
		return nil // somebody came meanwhile
	}
	e.cfg.Log.Info("idle timeout", "sandbox", s.ID, "idle", s.Timeouts.Idle)
	return e.destroyLocked(ctx, s.ID, Terminated, "idle for "+FormatDuration(s.Timeouts.Idle), "system")
}
