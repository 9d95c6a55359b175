package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// finish writes the end of an execution once. Where the store refuses, as on a
// full disk, the end is kept in memory, given to whoever asks, and written as
// soon as the store takes it again.
func (e *Engine) finish(id string, run *command, set func(*Execution)) {
	ended := e.cfg.Now()
	sandboxID := ""
	end := func(x *Execution) ([]Event, error) {
		sandboxID = x.SandboxID
		if x.Status.Done() {
			return nil, nil
		}
		set(x)
		x.EndedAt = ended
		run.measure(&x.StdoutBytes, &x.StderrBytes, &x.OutputTruncated)
		data := map[string]any{"executionId": x.ID, "status": string(x.Status)}
		if x.ExitCode != nil {
			data["exitCode"] = *x.ExitCode
		}
		return []Event{e.event(x.SandboxID, EventExecEnded, "system", data)}, nil
	}
	keep := func(yes bool) {
		if delete(e.unsaved, id); yes {
			e.unsaved[id] = func(x *Execution) { _, _ = end(x) }
		}
	}
	e.persist(id, keep, func(ctx context.Context) error {
		x, err := e.cfg.Store.UpdateExecution(ctx, id, end)
		if err == nil {
			e.recorded(sandboxID, id, x.StdoutBytes+x.StderrBytes)
		}
		return err
	})
}

// measure sets what a record says of the output of a command. Nil is a command
// that this server does not follow; its record stays as it is.
func (c *command) measure(stdout, stderr *int64, truncated *bool) {
	if c == nil {
		return
	}
	for st, kept := range map[Stream]*int64{Stdout: stdout, Stderr: stderr} {
		n, total := c.spools[st].sizes()
		*kept = n
		*truncated = *truncated || total > n
	}
	*truncated = *truncated || c.spools[Stdout].lost() > 0
}

// persist writes the end of a command, again and again if need be. keep is
// called, with mu held, to have it in memory in the meantime, and not any more.
func (e *Engine) persist(id string, keep func(bool), write func(context.Context) error) {
	try := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return write(ctx)
	}
	err := try()
	if err == nil {
		return
	}
	e.cfg.Log.Error("record the end of a command; trying on", "command", id, "err", err)
	e.mu.Lock()
	keep(true)
	e.mu.Unlock()
	e.background(func(ctx context.Context) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for err != nil && !fault.Is(err, fault.NotFound) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				err = try()
			}
		}
		e.mu.Lock()
		keep(false)
		e.mu.Unlock()
		e.pulse.beat()
	})
}

// forgetTime bounds telling a guest that it may forget a process.
const forgetTime = 10 * time.Second

// recorded is called when the end of a command is durable: the guest need not
// keep it any more, and its output begins to count against what a sandbox may
// keep.
func (e *Engine) recorded(sandboxID, id string, bytes int64) {
	if conn := e.conns.live(sandboxID); conn != nil {
		e.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, forgetTime)
			defer cancel()
			_ = conn.Forget(ctx, id) // or the guest forgets it by itself, later
		})
	}
	e.countOutput(sandboxID, bytes)
}

// afterExecution destroys a oneshot sandbox when its command has ended.
func (e *Engine) afterExecution(x Execution) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), e.cleanupTime())
	defer cancel()
	s, err := e.cfg.Store.Sandbox(ctx, x.SandboxID)
	if err != nil || s.Mode != Oneshot || !s.Status.Live() {
		return
	}
	if done, err := e.cfg.Store.Execution(ctx, x.ID); err == nil {
		if _, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
			s.ExitCode = done.ExitCode
			return []Event{e.event(s.ID, EventLifecycleCompleted, "system", map[string]any{"executionId": x.ID, "status": string(done.Status)})}, nil
		}); err != nil {
			e.cfg.Log.Warn("record the result of a oneshot", "sandbox", s.ID, "err", err)
		}
	}
	if err := e.destroy(ctx, s.ID, Terminated, "its command has ended", "system"); err != nil {
		e.cfg.Log.Error("remove a oneshot sandbox", "sandbox", s.ID, "err", err)
	}
}

// endExecutions records the end of what was under way in a sandbox that is no
// more: executions, queued ones, jobs and sessions.
func (e *Engine) endExecutions(ctx context.Context, sandboxID, why string, as ExecutionStatus) {
	e.dropQueue(sandboxID)
	open, err := e.cfg.Store.OpenExecutions(ctx)
	if err != nil {
		e.cfg.Log.Error("list open executions", "err", err)
	}
	for _, x := range open {
		if x.SandboxID != sandboxID {
			continue
		}
		e.finish(x.ID, e.running(x.ID), func(x *Execution) { x.Status, x.Error = as, why })
		e.mu.Lock()
		e.passOn(sandboxID, x.ID) // whoever still waits for it holds nobody up
		e.mu.Unlock()
	}
	status := JobFailed
	if as == ExecCancelled {
		status = JobCancelled
	}
	e.endJobs(ctx, sandboxID, why, status)
	e.endSessions(ctx, sandboxID, why)
}
