package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// outcome is how a command ended.
type outcome struct {
	how    ending
	code   *int
	reason string // for a person, when it did not end by itself
}

type ending int

const (
	hasExited ending = iota
	ranOut           // of time
	wasStopped
	wasLost
)

// outcomeOf waits for the end of a command, and brings it about when it was
// stopped. It is false when the server stops first: the command goes on then.
func (e *Engine) outcomeOf(run *command, clock *countdown, grace time.Duration) (outcome, bool) {
	exit, err := e.await(run, clock)
	cause := context.Cause(run.ctx)
	if e.ctx.Err() != nil {
		run.halt()
		return outcome{}, false
	}
	o := outcome{how: hasExited}
	if err != nil && (errors.Is(cause, errExecTimeout) || errors.Is(cause, errStopped)) {
		o.how = wasStopped
		if errors.Is(cause, errExecTimeout) {
			o.how = ranOut
		}
		exit, err = e.terminate(run, grace)
		if e.ctx.Err() != nil {
			run.halt()
			return outcome{}, false
		}
		if err != nil { // it was killed and did not tell
			exit, err = guest.Exit{Signal: "KILL"}, nil
		}
	}
	if err != nil {
		return outcome{how: wasLost, reason: fault.From(err).Error()}, true
	}
	code := exit.Status()
	o.code = &code
	return o, true
}

// storeRetry is how long to wait for a store that did not answer.
const storeRetry = time.Second

// attachRetry is how long to wait for a sandbox that did not answer, at first
// and at most.
const (
	attachRetry    = 100 * time.Millisecond
	maxAttachRetry = 10 * time.Second
)

// maxAttach bounds how often a command is attached to anew when its sandbox has
// not been paused in between.
const maxAttach = 3

// await waits for the end of a command, over lost connections, and over pauses
// of its sandbox that keep its memory.
func (e *Engine) await(run *command, clock *countdown) (guest.Exit, error) {
	var lost error
	for tries := 0; ; {
		if proc := run.process(); proc != nil {
			exit, err := proc.Wait(run.ctx)
			if err == nil || run.ctx.Err() != nil {
				return exit, err
			}
			lost = err
			run.detached()
		}
		proc, slept, err := e.reattach(run.ctx, run, clock)
		if slept {
			tries = 0
		}
		if tries++; err == nil && tries > maxAttach {
			proc.Close()
			err = lost
		}
		if err != nil {
			if lost != nil && !slept {
				err = lost
			}
			return guest.Exit{}, err
		}
		run.attached(proc)
		clock.goOn()
	}
}

// reattach finds a command again whose connection was lost. While its sandbox is
// paused with its memory, it waits for the sandbox to be resumed, and slept is
// true. While the sandbox runs and does not answer it tries on.
func (e *Engine) reattach(ctx context.Context, run *command, clock *countdown) (p *process, slept bool, err error) {
	retry := attachRetry
	for {
		changed := e.pulse.next()
		// Whoever pauses, resumes or removes it holds the lock until the
		// record says so.
		unlock, err := e.locks.lock(ctx, run.sandboxID)
		if err != nil {
			return nil, slept, err
		}
		s, err := e.cfg.Store.Sandbox(ctx, run.sandboxID)
		unlock()
		switch {
		case fault.Is(err, fault.NotFound):
			return nil, slept, err
		case err != nil:
			// A store that does not answer is no reason to give up what runs.
			e.cfg.Log.Warn("look for the sandbox of a command; trying on", "command", run.id, "sandbox", run.sandboxID, "err", err)
			select {
			case <-time.After(storeRetry):
				continue
			case <-ctx.Done():
				return nil, slept, ctx.Err()
			}
		case s.Status.Up():
			p, err := e.attach(ctx, run.sandboxID, run.id, run.offset(), run.output())
			if !e.silent(ctx, run.sandboxID, err) {
				return p, slept, err
			}
			select {
			case <-time.After(retry):
				retry = min(2*retry, maxAttachRetry)
				continue
			case <-ctx.Done():
				return nil, slept, ctx.Err()
			}
		case !s.asleep():
			return nil, slept, s.notUp()
		}
		slept = true
		run.sleeps()
		clock.hold()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, slept, ctx.Err()
		}
	}
}

// silent reports whether err came of a sandbox that runs and does not answer, as
// one that the host has no time for. What runs in it is not lost by that.
func (e *Engine) silent(ctx context.Context, id string, err error) bool {
	if code := fault.CodeOf(err); err == nil || ctx.Err() != nil || code != fault.Unavailable && code != fault.Timeout {
		return false
	}
	st, ierr := e.cfg.Driver.Inspect(ctx, id)
	return ierr == nil && st.State == driver.Running
}

// asleep reports whether the sandbox is down with its processes kept.
func (s *Sandbox) asleep() bool {
	return s.Memory && (s.Status == Paused || s.Status == Suspended)
}
