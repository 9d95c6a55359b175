package sandbox

import (
	"context"
	"errors"
	"time"
)

// stuckAfter is how long a sandbox may be stopping before its removal is tried
// again: the first try has failed by then, or the lock says otherwise.
const stuckAfter = 30 * time.Second

// reapLock locks a sandbox for a reaper. Somebody may be at something long with
// it, while others wait for their turn: unlock is nil then, and the next round
// looks again.
func (e *Engine) reapLock(ctx context.Context, id string) (unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, reapWait)
	defer cancel()
	unlock, err = e.locks.lock(waiting, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return unlock, err
}

// finishStopping removes what a failed removal has left half-way.
func (e *Engine) finishStopping(ctx context.Context) {
	list, _, err := e.cfg.Store.Sandboxes(ctx, SandboxFilter{Statuses: []Status{Stopping}})
	if err != nil {
		e.cfg.Log.Warn("list what is being removed", "err", err)
		return
	}
	for _, s := range list {
		if s.Driver != e.cfg.Driver.Name() || e.cfg.Now().Sub(s.UpdatedAt) < stuckAfter {
			continue
		}
		if err := e.finishOne(ctx, s.ID); err != nil {
			e.cfg.Log.Warn("remove a sandbox again", "sandbox", s.ID, "err", err)
		}
	}
}

func (e *Engine) finishOne(ctx context.Context, id string) error {
	unlock, err := e.reapLock(ctx, id)
	if unlock == nil {
		return err
	}
	defer unlock()
	s, err := e.cfg.Store.Sandbox(ctx, id)
	if err != nil || s.Status != Stopping {
		return err
	}
	final := Deleted
	if s.Mode == Oneshot {
		final = Terminated
	}
	return e.destroyLocked(ctx, id, final, s.StatusReason, "system")
}
