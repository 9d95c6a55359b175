package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// reconcileSessions takes up the sessions that go on, and records the end of
// those that are lost. None runs that is not on record: the record is written
// before the process is started.
func (e *Engine) reconcileSessions(ctx context.Context, r *Reconciliation) {
	open, err := e.cfg.Store.Sessions(ctx, SessionFilter{LiveOnly: true})
	if err != nil {
		e.cfg.Log.Error("list live sessions", "err", err)
		return
	}
	swept := map[string]bool{}
	for _, s := range open {
		box, err := e.cfg.Store.Sandbox(ctx, s.SandboxID)
		if err == nil && box.Driver != e.cfg.Driver.Name() || e.sessions.byID(s.ID) != nil {
			continue
		}
		if err == nil && !box.Status.Up() && !box.asleep() {
			err = box.notUp()
		}
		if err != nil {
			e.cfg.Log.Warn("a session was lost", "session", s.ID, "sandbox", s.SandboxID, "err", err)
			e.lostSession(s, "lost when the server stopped")
			continue
		}
		if !box.asleep() && !swept[box.ID] {
			swept[box.ID] = true
			e.background(func(ctx context.Context) { e.sweepSessions(ctx, box.ID) })
		}
		if e.adoptSession(ctx, &box, &s, r) {
			r.Sessions++
		}
	}
}

// sweepAfter is how long the last words of a server that has died may be on
// their way to a guest.
const sweepAfter = 3 * time.Second

// sweepSessions ends what a guest was told to start by a server that has died,
// when it came to it only after the next server had looked.
func (e *Engine) sweepSessions(ctx context.Context, sandboxID string) {
	select {
	case <-time.After(sweepAfter):
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	conn, err := e.conns.get(ctx, sandboxID)
	if err != nil {
		return
	}
	list, err := conn.List(ctx)
	if err != nil {
		return
	}
	for _, info := range list {
		if info.Label != "session" || info.Exited || e.sessions.byID(info.ID) != nil {
			continue
		}
		e.cfg.Log.Warn("end a session without a record", "session", info.ID, "sandbox", sandboxID)
		p, err := e.attach(ctx, sandboxID, info.ID, ahead, guest.Output{Hold: guest.HoldNever})
		if err != nil {
			continue
		}
		_ = p.Hangup(ctx) // the guest sees to the rest
		_, _ = p.Wait(ctx)
		p.Close()
		e.forget(sandboxID, info.ID)
	}
}

// adoptSession takes up a session that an earlier server started. It is false
// when that has ended.
func (e *Engine) adoptSession(ctx context.Context, box *Sandbox, s *Session, r *Reconciliation) bool {
	ls := e.newSession(s.ID, s.SandboxID, s.Name)
	ls.asleep = box.asleep()
	ls.detachedAt = s.DetachedAt
	if s.Status == SessionAttached || ls.detachedAt.IsZero() {
		// That server's clients went with it.
		ls.detachedAt = e.cfg.Now()
		ls.facts = []Event{e.event(s.SandboxID, EventSessionDetach, "system", map[string]any{
			"sessionId": s.ID, "name": s.Name, "reason": "the server stopped",
		})}
	}
	if e.recorder != nil && s.Recording != "" {
		tap, from, err := e.recorder.goOn(ctx, s)
		if err != nil {
			e.cfg.Log.Error("go on with the recording of a session", "session", s.ID, "recording", s.Recording, "err", err)
		} else if tap != nil {
			ls.tap, ls.tapFrom = tap, from
		}
	}
	if _, err := e.sessions.add(ls, 0); err != nil {
		return false
	}
	ls.markStarted()
	if !ls.asleep && !r.silent[box.ID] && !e.sessionLives(ctx, ls, r) {
		return false
	}
	ls.mu.Lock()
	if len(ls.facts) > 0 {
		ls.save()
	}
	ls.mu.Unlock()
	e.background(ls.keep)
	return true
}

// sessionLives looks for the process of a session. One that has ended, or is
// gone, is recorded so. A sandbox that does not answer holds up no start: the
// keeper tries on.
func (e *Engine) sessionLives(ctx context.Context, ls *liveSession, r *Reconciliation) bool {
	short, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	conn, err := e.conns.get(short, ls.sandboxID)
	var list []guest.Info
	if err == nil {
		list, err = conn.List(short)
	}
	if e.silent(ctx, ls.sandboxID, err) {
		if r.silent == nil {
			r.silent = map[string]bool{}
		}
		r.silent[ls.sandboxID] = true
	}
	if err != nil {
		e.cfg.Log.Warn("look for the process of a session; trying on", "session", ls.id, "sandbox", ls.sandboxID, "err", err)
		return true
	}
	for _, info := range list {
		switch {
		case info.ID != ls.id:
		case info.Exited && ls.tap == nil:
			ls.finish(&info.Exit, "", -1)
			return false
		default:
			return true
		}
	}
	// It may be on its way to the guest still; then it is ended when it is there.
	ls.mu.Lock()
	ls.parting = fault.From(errSessionLost).Error() + ": lost when the server stopped"
	ls.doubt = time.Now().Add(sweepAfter)
	ls.hang()
	ls.mu.Unlock()
	e.background(ls.keep)
	return false
}
