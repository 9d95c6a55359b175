package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// finish records the end of a session, once: the exit of its process, or why it
// has none. bytes is all that it printed, -1 when that is not known. When
// finish returns the end is on record, or will be as soon as the store takes
// it.
func (ls *liveSession) finish(exit *guest.Exit, reason string, bytes int64) {
	e := ls.e
	ls.mu.Lock()
	if ls.over {
		ls.mu.Unlock()
		<-ls.gone
		return
	}
	ls.over = true
	if ls.parting != "" {
		reason = ls.parting
	}
	by := ls.partingBy
	if by == "" {
		by = "system"
	}
	facts, viewers, tap := ls.facts, slices.Clone(ls.viewers), ls.tap
	ls.facts = nil
	ls.stir()
	ls.mu.Unlock()

	ended := e.cfg.Now()
	end := func(s *Session) ([]Event, error) {
		if s.Status == SessionEnded {
			return facts, nil
		}
		s.Status, s.Exit, s.Reason, s.EndedAt, s.DetachedAt = SessionEnded, exit, reason, ended, time.Time{}
		if at := ls.activeAt(); at.After(s.ActiveAt) {
			s.ActiveAt = at
		}
		return append(slices.Clone(facts), ls.endEvent(s, by, bytes)), nil
	}
	keep := func(yes bool) {
		if !yes {
			e.sessions.keepEnd(ls.id, nil)
			return
		}
		e.sessions.keepEnd(ls.id, func(s *Session) { _, _ = end(s) })
	}
	e.persist(ls.id, keep, func(ctx context.Context) error {
		_, err := e.cfg.Store.UpdateSession(ctx, ls.id, end)
		if err == nil && exit != nil {
			e.forget(ls.sandboxID, ls.id)
		}
		return err
	})
	e.sessions.remove(ls)
	close(ls.gone)
	if tap != nil {
		tap.Ended(exit)
	}
	if exit == nil {
		// Nobody will learn the end from the process.
		for _, v := range viewers {
			v.detach(fault.New(fault.State, "session %q ended: %s", ls.name(), reason).About("session"), reason)
		}
	}
	e.pulse.beat()
}

// forget lets a guest drop a process whose end is on record.
func (e *Engine) forget(sandboxID, processID string) {
	conn := e.conns.live(sandboxID)
	if conn == nil {
		return // the guest forgets it by itself, later
	}
	e.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, forgetTime)
		defer cancel()
		_ = conn.Forget(ctx, processID)
	})
}

// endSessions records the end of the sessions of a sandbox whose processes are
// no more, or are about to be.
func (e *Engine) endSessions(ctx context.Context, sandboxID, why string) {
	open, err := e.cfg.Store.Sessions(ctx, SessionFilter{SandboxID: sandboxID, LiveOnly: true})
	if err != nil {
		e.cfg.Log.Error("list the sessions of a sandbox", "sandbox", sandboxID, "err", err)
		return // their keepers find out
	}
	for _, s := range open {
		switch ls := e.sessions.byID(s.ID); {
		case ls == nil && e.sessions.endOf(s.ID) == nil:
			e.lostSession(s, why) // this server has not taken it up
		case ls == nil:
		case ls.isStarted():
			ls.finish(nil, why, -1)
		default:
			// Whoever starts it is told, and ends it.
			ls.mu.Lock()
			ls.parting = why
			ls.mu.Unlock()
		}
	}
}

// lostSession records the end of a session that nobody follows.
func (e *Engine) lostSession(s Session, why string) {
	ls := e.newSession(s.ID, s.SandboxID, s.Name)
	ls.finish(nil, why, -1)
}

// detachAll detaches everybody.
func (ls *liveSession) detachAll(why error, reason string) {
	ls.mu.Lock()
	viewers := slices.Clone(ls.viewers)
	ls.mu.Unlock()
	for _, v := range viewers {
		v.detach(why, reason)
	}
}

// part begins to end a session, for the reason that its record gives then.
func (ls *liveSession) part(why, by string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.over {
		return
	}
	if ls.parting == "" {
		ls.parting, ls.partingBy = why, by
		for _, v := range ls.viewers {
			v.tell("the session ends: " + why)
		}
	}
	ls.hang()
}

// hang has the session hung up, until it has ended. The caller holds mu.
func (ls *liveSession) hang() {
	if ls.hanging || ls.over || ls.asleep || ls.parting == "" || ls.e.ctx.Err() != nil {
		return
	}
	ls.hanging = true
	ls.e.background(func(ctx context.Context) {
		defer func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.hanging = false
		}()
		for retry := attachRetry; ls.hangUp(ctx); retry = min(2*retry, maxAttachRetry) {
			select {
			case <-time.After(retry):
			case <-ls.gone:
			case <-ctx.Done():
			}
		}
	})
}

// hangupPatience is how long a session has to end after its hangup, which
// includes the guest's own SIGKILL to the group that leads it, before everything
// in it is killed.
const hangupPatience = 7 * time.Second

// hangUp hangs a session up and waits for its end; false when there is nothing
// more to do.
func (ls *liveSession) hangUp(ctx context.Context) (again bool) {
	ls.mu.Lock()
	done := ls.over || ls.asleep
	ls.mu.Unlock()
	if done || ctx.Err() != nil {
		return false
	}
	p, err := ls.e.attach(ctx, ls.sandboxID, ls.id, ahead, guest.Output{Hold: guest.HoldNever})
	if err != nil {
		return true // the keeper finds out what that means
	}
	defer p.Close()
	for _, do := range []func(context.Context) error{p.Hangup, func(ctx context.Context) error { return p.SignalSession(ctx, "KILL") }} {
		_ = do(ctx) // what came of it is seen in the end
		wait, cancel := context.WithTimeout(ctx, hangupPatience)
		exit, err := p.Wait(wait)
		cancel()
		if err == nil {
			cur, _, _ := p.current()
			ls.finish(&exit, "", cur.Offset())
			return false
		}
	}
	return true
}

// expireSessions ends the sessions that nobody has controlled for too long.
func (e *Engine) expireSessions() {
	now := e.cfg.Now()
	for _, ls := range e.sessions.of("") {
		ls.mu.Lock()
		at := ls.endsAt()
		due := ls.isStarted() && !ls.controlled() && !at.IsZero() && !now.Before(at)
		ls.mu.Unlock()
		if due {
			ls.part("nobody was attached to it for "+FormatDuration(e.cfg.SessionKeep), "system")
		}
	}
}

// sleepSessions detaches everybody from the sessions of a sandbox that was
// paused with its memory. They wait in it.
func (e *Engine) sleepSessions(sandboxID string) {
	for _, ls := range e.sessions.of(sandboxID) {
		ls.sleep()
	}
}

func (ls *liveSession) sleep() {
	ls.mu.Lock()
	if ls.over || ls.asleep {
		ls.mu.Unlock()
		return
	}
	ls.asleep = true
	if ls.detachedAt.IsZero() {
		ls.detachedAt = ls.e.cfg.Now()
	}
	ls.stir()
	ls.save()
	ls.mu.Unlock()
	why := fault.New(fault.State, "sandbox %s was paused; session %q waits in it: attach to it again, which resumes the sandbox", ls.sandboxID, ls.name()).About("sandbox")
	ls.detachAll(why, "the sandbox was paused")
}

// wakeSessions takes up the sessions of a sandbox that was resumed with its
// memory. The time in which somebody has to come back counts from now.
func (e *Engine) wakeSessions(sandboxID string) {
	for _, ls := range e.sessions.of(sandboxID) {
		ls.mu.Lock()
		if ls.asleep && !ls.over {
			ls.asleep = false
			ls.detachedAt = e.cfg.Now()
			ls.stir()
			ls.save()
			ls.hang()
		}
		ls.mu.Unlock()
	}
}
