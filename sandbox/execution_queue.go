package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// turnTime bounds making a sandbox ready for a command that had waited.
const turnTime = 5 * time.Minute

// hold reserves the sandbox for one execution, or a place in its queue, and
// opens the output.
func (e *Engine) hold(x *Execution, queue bool) (*command, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	other := e.busy[x.SandboxID]
	switch {
	case other != "" && !queue:
		return nil, fault.New(fault.Busy, "sandbox %s is busy with %s; wait for it, cancel it, or queue the command", x.SandboxID, other).About("sandbox")
	case other != "" && len(e.queues[x.SandboxID]) >= e.cfg.MaxQueued:
		return nil, fault.New(fault.Exhausted, "sandbox %s has %d commands queued, as many as it may; wait, or cancel one", x.SandboxID, e.cfg.MaxQueued).About("sandbox")
	}
	spools, err := e.openSpools(x.SandboxID, x.ID, false)
	if err != nil {
		return nil, err
	}
	run := e.newCommand(x.ID, x.SandboxID, spools)
	if other != "" {
		e.queues[x.SandboxID] = append(e.queues[x.SandboxID], run)
		return run, nil
	}
	e.busy[x.SandboxID] = x.ID
	close(run.turn)
	return run, nil
}

// passOn gives the sandbox that id holds to the next in its queue. The caller
// holds mu.
func (e *Engine) passOn(sandboxID, id string) {
	if e.busy[sandboxID] != id {
		return
	}
	queue := e.queues[sandboxID]
	if len(queue) == 0 {
		delete(e.busy, sandboxID)
		return
	}
	e.setQueue(sandboxID, queue[1:])
	e.busy[sandboxID] = queue[0].id
	close(queue[0].turn)
}

// setQueue replaces a queue. The caller holds mu.
func (e *Engine) setQueue(sandboxID string, queue []*command) {
	if len(queue) == 0 {
		delete(e.queues, sandboxID)
		return
	}
	e.queues[sandboxID] = queue
}

// leaveQueue takes a command out of the queue, if it is still there.
func (e *Engine) leaveQueue(run *command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := slices.DeleteFunc(slices.Clone(e.queues[run.sandboxID]), func(c *command) bool { return c == run })
	e.setQueue(run.sandboxID, queue)
}

// dropQueue ends the waiting of all that is queued in a sandbox that is no more.
func (e *Engine) dropQueue(sandboxID string) {
	e.mu.Lock()
	queue := e.queues[sandboxID]
	delete(e.queues, sandboxID)
	e.mu.Unlock()
	for _, run := range queue {
		run.stop(errGone)
	}
}

// enqueue records an execution as queued and starts it when its turn comes. A
// queued command lives in this server alone: what it is to run with (its
// variables, its files) is not written down, so when the server ends first, the
// next one records it as cancelled and says why.
func (e *Engine) enqueue(ctx context.Context, x Execution, r ExecRequest, by string, run *command, endActivity func()) (Execution, error) {
	x.Status = ExecQueued
	err := e.cfg.Store.CreateExecution(ctx, x, e.event(x.SandboxID, EventExecQueued, by, map[string]any{"executionId": x.ID}))
	if err != nil {
		e.leaveQueue(run)
		endActivity()
		e.letGo(run)
		return Execution{}, err
	}
	e.pulse.beat()
	e.background(func(context.Context) {
		select {
		case <-run.turn:
		case <-run.ctx.Done():
		}
		if e.ctx.Err() != nil {
			run.halt()
			return
		}
		done, err := x, context.Cause(run.ctx)
		if err == nil {
			done, err = e.takeTurn(x, r, by, run)
		}
		if err == nil {
			e.pulse.beat()
			e.follow(run, done, done.Timeout, endActivity)
			return
		}
		e.leaveQueue(run)
		e.finish(x.ID, run, func(x *Execution) {
			x.Status, x.Error = ExecFailed, fault.From(err).Error()
			if context.Cause(run.ctx) != nil {
				x.Status, x.Error = ExecCancelled, "cancelled before its turn"
			}
		})
		endActivity()
		e.letGo(run)
		e.pulse.beat()
	})
	return x, nil
}

// takeTurn starts a command that had been queued.
func (e *Engine) takeTurn(x Execution, r ExecRequest, by string, run *command) (Execution, error) {
	ctx, cancel := context.WithTimeout(run.ctx, turnTime)
	defer cancel()
	// Whoever queued it was asked then, and is asked again: a key may have been
	// taken away since, and the sandbox may have been stopped.
	if err := e.Recheck(ctx, r.who); err != nil {
		return x, err
	}
	s, err := e.As(r.who).ready(ctx, x.SandboxID, "Execute")
	if err != nil {
		return x, err
	}
	return e.launch(ctx, s, r, x, run, func(now Execution) error {
		_, err := e.cfg.Store.UpdateExecution(ctx, x.ID, func(x *Execution) ([]Event, error) {
			if x.Status != ExecQueued {
				return nil, fault.New(fault.State, "execution %s has ended while it was queued", x.ID).About("execution")
			}
			x.Status, x.StartedAt = now.Status, now.StartedAt
			return []Event{e.event(x.SandboxID, EventExecStarted, by, map[string]any{"executionId": x.ID})}, nil
		})
		return err
	})
}
