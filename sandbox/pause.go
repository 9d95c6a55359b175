package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

var _ LifecycleOperations = (*Actor)(nil)

// Why a sandbox was paused or resumed, in the events.
const (
	whyByHand = "by hand"
	whyUsed   = "it was used"
)

// suspendTime bounds the writing, and the reading, of a memory image.
const suspendTime = 10 * time.Minute

// lastWords is how long a guest has to take in what was sent to it before its
// connection is closed for a pause.
const lastWords = time.Second

// Pause stops a sandbox so that it costs neither memory nor CPU.
func (a *Actor) Pause(ctx context.Context, ref string) (Sandbox, error) {
	s, err := a.resolve(ctx, ref, "Pause")
	if err != nil || s.Status == Paused {
		return s, err
	}
	if err := a.e.mine(&s); err != nil {
		return s, err
	}
	// Before anything is waited for: a creation may take minutes.
	if err := s.pausable(); err != nil {
		return s, err
	}
	return a.e.pause(ctx, s.ID, a.who.ID, whyByHand)
}

// pausable says why a sandbox cannot be paused in its present state.
func (s *Sandbox) pausable() error {
	next := *s
	if err := next.moveTo(Paused, ""); err != nil {
		return err
	}
	if s.Mode == Oneshot {
		return fault.New(fault.State, "sandbox %s runs one command and goes with it; only an interactive sandbox can be paused", s.ID).About("sandbox")
	}
	return nil
}

// pause pauses a sandbox. Once begun it is finished even if the caller gives
// up. Whatever goes wrong, the sandbox either runs on as it did or is paused.
func (e *Engine) pause(ctx context.Context, id, by, why string) (Sandbox, error) {
	unlock, err := e.locks.lock(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer unlock()
	s, err := e.cfg.Store.Sandbox(ctx, id)
	if err != nil || s.Status == Paused {
		return s, err
	}
	if err := s.pausable(); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), suspendTime)
	defer cancel()
	begun := e.cfg.Now()
	e.lastSample(ctx, &s)
	release, err := e.quiet(ctx, id)
	if err != nil {
		return s, err
	}
	defer release()
	memory, reason, err := e.putDown(ctx, id)
	if err != nil {
		return s, err
	}
	data := map[string]any{"memory": memory, "why": why}
	if reason != "" {
		data["reason"] = reason
	}
	was := s
	s, err = e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		now := e.cfg.Now()
		data["durationMs"] = now.Sub(begun).Milliseconds()
		s.PausedAt, s.Memory = now, memory
		s.setTerminatesAt()
		return []Event{e.event(id, EventPause, by, data)}, s.moveTo(Paused, "")
	})
	if err != nil {
		// What nobody would know of must not be: it goes on.
		if _, uerr := e.putUp(ctx, &was, release); uerr != nil {
			e.cfg.Log.Error("take a pause back that could not be recorded", "sandbox", id, "err", uerr)
		}
		return was, err
	}
	if memory {
		e.sleepSessions(id)
	} else {
		e.endExecutions(ctx, id, "the sandbox was paused", ExecFailed)
	}
	return s, nil
}

// setTerminatesAt counts the paused timeout from PausedAt.
func (s *Sandbox) setTerminatesAt() {
	s.TerminatesAt = time.Time{}
	if s.Timeouts.Paused > 0 {
		s.TerminatesAt = s.PausedAt.Add(s.Timeouts.Paused)
	}
}

// quiet closes the connection to a guest and keeps others from opening one
// until release is called, which may be called again.
func (e *Engine) quiet(ctx context.Context, id string) (release func(), err error) {
	if c := e.conns.live(id); c != nil {
		// The answer comes behind all that was sent before.
		words, cancel := context.WithTimeout(ctx, lastWords)
		_ = c.Ping(words)
		cancel()
	}
	return e.conns.hold(ctx, id)
}

// suspender is the driver's ability to keep memory, nil when it has none.
func (e *Engine) suspender() driver.Suspender {
	if sp, ok := e.cfg.Driver.(driver.Suspender); ok && e.caps.Support[driver.FeatureCheckpoint].OK {
		return sp
	}
	return nil
}

// putDown stops a running sandbox, with its memory where that can be had. The
// reason says why it was stopped without. After an error it runs.
func (e *Engine) putDown(ctx context.Context, id string) (memory bool, reason string, err error) {
	durable := e.caps.Support[driver.FeatureDurableFiles]
	reason = e.caps.Support[driver.FeatureCheckpoint].Reason
	if sp := e.suspender(); sp != nil {
		err := sp.Suspend(ctx, id)
		if err == nil {
			return true, "", nil
		}
		reason = fault.From(err).Error()
		if !fault.Is(err, fault.Unsupported) {
			e.cfg.Log.Warn("suspend sandbox", "sandbox", id, "err", err, "cause", fault.From(err).Cause)
			st, ierr := e.cfg.Driver.Inspect(ctx, id)
			if ierr != nil || st.State != driver.Stopped || !durable.OK && !st.Memory {
				return false, "", err
			}
			return st.Memory, reason, nil
		}
	}
	if !durable.OK {
		return false, "", fault.New(fault.Unsupported, "sandbox %s cannot be paused, its files would be lost: %s", id, durable.Reason).About("sandbox")
	}
	return false, reason, e.cfg.Driver.Stop(ctx, id, max(e.cfg.StopGrace, time.Second))
}
