package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

const (
	// wakeTime bounds finding a command again that is to be stopped and was
	// paused with its sandbox.
	wakeTime = time.Minute
	// killTime is how long a command may take to die of SIGKILL before what
	// still holds its output open is cut off, and cutTime how long that may
	// take.
	killTime = 3 * time.Second
	cutTime  = 15 * time.Second
)

// terminate ends a command, over a connection that is lost meanwhile.
func (e *Engine) terminate(run *command, grace time.Duration) (exit guest.Exit, err error) {
	for range maxAttach {
		proc := run.process()
		if proc == nil {
			ctx, cancel := context.WithTimeout(e.ctx, wakeTime)
			found, _, lost := e.reattach(ctx, run, nil)
			cancel()
			if lost != nil {
				return exit, lost
			}
			run.attached(found)
			proc = found
		}
		if exit, err = e.killOff(proc, run.kill, grace); !errors.Is(err, guest.ErrLost) && !fault.Is(err, fault.Unavailable) {
			return exit, err
		}
		run.detached()
	}
	return exit, err
}

// killOff sends SIGTERM to the session of a process, SIGKILL after the grace
// period, or at once when now is closed. What made itself a session of its own
// and still holds the output is then cut off from it.
func (e *Engine) killOff(proc *process, now <-chan struct{}, grace time.Duration) (guest.Exit, error) {
	type end struct {
		exit guest.Exit
		err  error
	}
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan end, 1)
	waited := make(chan struct{})
	go func() { // ends with ctx, and is waited for below
		defer close(waited)
		exit, err := proc.Wait(ctx)
		ended <- end{exit, err}
	}()
	defer func() {
		cancel()
		<-waited
	}()
	steps := []struct {
		do    func()
		wait  time.Duration
		hurry <-chan struct{}
	}{
		{func() { _ = proc.SignalSession(ctx, "TERM") }, grace, now}, // the end tells what came of it
		{func() { _ = proc.SignalSession(ctx, "KILL") }, killTime, nil},
		{func() { _ = proc.Hangup(ctx) }, cutTime, nil},
	}
	select {
	case <-now:
		steps = steps[1:]
	default:
	}
	for _, step := range steps {
		step.do()
		timer := time.NewTimer(step.wait)
		select {
		case end := <-ended:
			timer.Stop()
			return end.exit, end.err
		case <-step.hurry:
		case <-timer.C:
		}
		timer.Stop()
	}
	return guest.Exit{}, context.DeadlineExceeded
}

// SignalSession sends a signal to the whole session of the process.
func (p *process) SignalSession(ctx context.Context, name string) error {
	return p.retry(ctx, func(g *guest.Process) error { return g.SignalSession(ctx, name) })
}

// Cancel ends an execution. Cancelling one that has ended does nothing.
func (a *Actor) Cancel(ctx context.Context, executionID string) error {
	x, err := a.execution(ctx, executionID, "Cancel")
	if err != nil {
		return err
	}
	run := a.e.running(x.ID)
	if run == nil {
		return nil
	}
	return a.halt(ctx, run)
}

// halt stops a command and waits for its end. One that is paused with its
// sandbox can end only when that is resumed.
func (a *Actor) halt(ctx context.Context, run *command) error {
	// The record knows it first: whoever follows the command may not have
	// noticed yet.
	s, err := a.e.cfg.Store.Sandbox(ctx, run.sandboxID)
	if err != nil {
		return err
	}
	if s.asleep() {
		if _, err := a.ready(ctx, run.sandboxID, "Cancel"); err != nil {
			return err
		}
	}
	run.stop(errStopped)
	return run.waitDone(ctx)
}
