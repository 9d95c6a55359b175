package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Resume brings a paused or suspended sandbox up again.
func (a *Actor) Resume(ctx context.Context, ref string) (Sandbox, error) {
	s, _, err := a.awake(ctx, ref, "Resume", whyByHand)
	return s, err
}

// wake starts a sandbox that is paused, or that the system has stopped. Those
// who come while it is under way wait for it and find it up. Once begun it is
// finished even if the caller gives up.
func (e *Engine) wake(ctx context.Context, id string, who keys.Principal, why string) (s Sandbox, resumed bool, err error) {
	unlock, err := e.locks.lock(ctx, id)
	if err != nil {
		return s, false, err
	}
	defer unlock()
	s, err = e.cfg.Store.Sandbox(ctx, id)
	if err != nil || s.Status.Up() {
		return s, false, err
	}
	next := s
	if err := next.moveTo(Idle, ""); err != nil || s.Status == Creating {
		return s, false, s.notUp()
	}
	claim, err := e.claim(ctx, who, &s, Quota{MemoryBytes: s.Limits.MemoryBytes, CPUMillis: s.Limits.CPUMillis})
	if err != nil {
		return s, false, err
	}
	defer claim.drop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), suspendTime)
	defer cancel()
	begun := e.cfg.Now()
	back, err := e.putUp(ctx, &s, func() {})
	if err != nil {
		e.staysDown(ctx, &s)
		return s, false, fault.Wrap(err, fault.CodeOf(err), "sandbox %s is %s and could not be resumed: %s", id, s.Status, fault.From(err).Error()).About("sandbox")
	}
	if s.Memory && !back.Memory {
		e.endExecutions(ctx, id, "the sandbox was resumed without its processes: "+back.Reason, ExecFailed)
	}
	data := map[string]any{"memory": back.Memory, "why": why, "durationMs": e.cfg.Now().Sub(begun).Milliseconds()}
	if s.Memory && !back.Memory {
		data["reason"] = back.Reason
	}
	if err = claim.settle(ctx, func() error { s, err = e.markUp(ctx, &s, who.ID, data); return err }); err != nil {
		if _, _, derr := e.putDown(ctx, id); derr != nil {
			e.cfg.Log.Error("take a resume back that could not be recorded", "sandbox", id, "err", derr)
		}
		return s, false, err
	}
	return s, true, nil
}

// putUp starts a sandbox that does not run, with its memory if it has one, and
// returns when its guest answers. opened is called before the guest is. After
// an error it does not run.
func (e *Engine) putUp(ctx context.Context, s *Sandbox, opened func()) (driver.Resumption, error) {
	var back driver.Resumption
	if err := e.allowNetwork(ctx, s); err != nil {
		return back, err
	}
	sp, ok := e.cfg.Driver.(driver.Suspender)
	st, err := e.cfg.Driver.Inspect(ctx, s.ID)
	switch {
	case err != nil:
	case st.State == driver.Running: // an earlier attempt could not be taken back
		back.Memory = s.Memory
	case ok && (s.Memory || e.suspender() != nil):
		back, err = sp.Resume(ctx, s.ID)
	default:
		err = e.cfg.Driver.Start(ctx, s.ID)
	}
	if err != nil {
		return back, err
	}
	opened()
	e.meters.restarted(s.ID, e.cfg.Now())
	if _, err = e.conns.get(ctx, s.ID); err != nil && back.Memory {
		// An image that can be read need not be one that lives.
		e.cfg.Log.Warn("a sandbox does not answer after its resume; starting it from its files", "sandbox", s.ID, "err", err)
		back = driver.Resumption{Reason: "its processes did not answer"}
		if err = e.cfg.Driver.Stop(ctx, s.ID, 0); err == nil {
			err = e.cfg.Driver.Start(ctx, s.ID)
		}
		if err == nil {
			_, err = e.conns.get(ctx, s.ID)
		}
	}
	if err != nil {
		e.conns.drop(s.ID)
		if serr := e.cfg.Driver.Stop(ctx, s.ID, 0); serr != nil {
			e.cfg.Log.Error("stop a sandbox that did not start", "sandbox", s.ID, "err", serr)
		}
	}
	return back, err
}

// markUp records that a sandbox is up again, and lets go on what waited for it.
func (e *Engine) markUp(ctx context.Context, s *Sandbox, by string, data map[string]any) (Sandbox, error) {
	busy, err := e.hasOpenExecution(ctx, s.ID)
	if err != nil {
		return *s, err
	}
	typ := EventResume
	if s.Status != Paused {
		typ = EventLifecycleStarted
		data["resumed"] = true
	}
	up, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		s.ActiveAt = e.cfg.Now()
		if err := s.moveTo(Idle, ""); err != nil {
			return nil, err
		}
		if busy {
			s.Status = Running
		}
		return []Event{e.event(s.ID, typ, by, data)}, nil
	})
	if err != nil {
		return *s, err
	}
	e.touch(s.ID)
	e.watch(s.ID)
	e.wakeSessions(s.ID)
	return up, nil
}

func (e *Engine) hasOpenExecution(ctx context.Context, id string) (bool, error) {
	open, err := e.cfg.Store.OpenExecutions(ctx)
	for _, x := range open {
		if x.SandboxID == id {
			return true, err
		}
	}
	return false, err
}

// staysDown notes of a sandbox that could not be started if its memory went
// with the attempt.
func (e *Engine) staysDown(ctx context.Context, s *Sandbox) {
	if !s.Memory {
		return
	}
	if st, err := e.cfg.Driver.Inspect(ctx, s.ID); err != nil || st.Memory {
		return
	}
	if _, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) { s.Memory = false; return nil, nil }); err != nil {
		e.cfg.Log.Error("record the loss of a memory image", "sandbox", s.ID, "err", err)
		return
	}
	e.endExecutions(ctx, s.ID, "the memory of the sandbox could not be brought back", ExecFailed)
}
