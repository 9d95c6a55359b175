package sandbox

import (
	"context"
	"time"
)

// Countdown tells when and why the system will next end a sandbox.
func (a *Actor) Countdown(ctx context.Context, ref string) (time.Time, string, error) {
	s, err := a.resolve(ctx, ref, "Countdown")
	if err != nil {
		return time.Time{}, "", err
	}
	return a.e.countdown(ctx, &s)
}

// countdown is when the sandbox is ended, and the reason that its record gives
// then; the zero time for never as long as nothing changes.
func (e *Engine) countdown(ctx context.Context, s *Sandbox) (time.Time, string, error) {
	switch {
	case s.Status == Paused && !s.TerminatesAt.IsZero():
		return s.TerminatesAt, "paused for " + FormatDuration(s.Timeouts.Paused), nil
	case s.Status != Idle || s.Timeouts.Idle <= 0:
		return time.Time{}, "", nil
	}
	last, underWay := e.activeSince(s)
	if underWay {
		return time.Time{}, "", nil
	}
	// Jobs count whether this server follows them or not.
	jobs, err := e.cfg.Store.OpenJobs(ctx, s.ID)
	if err != nil || len(jobs) > 0 {
		return time.Time{}, "", err
	}
	return last.Add(s.Timeouts.Idle), "idle for " + FormatDuration(s.Timeouts.Idle), nil
}
