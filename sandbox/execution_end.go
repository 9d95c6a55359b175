package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// finish writes the end of an execution once. Where the store refuses, as on a
// full disk, the end is kept in memory, given to whoever asks, and written as
// soon as the store takes it again.
func (e *Engine) finish(id string, run *runningExec, set func(*Execution)) {
	ended := e.cfg.Now()
	end := func(x *Execution) ([]Event, error) {
		if x.Status.Done() {
			return nil, nil
		}
		set(x)
		x.EndedAt = ended
		if run != nil {
			var total int64
			x.StdoutBytes, total = run.spools[Stdout].sizes()
			x.OutputTruncated = x.OutputTruncated || total > x.StdoutBytes
			x.StderrBytes, total = run.spools[Stderr].sizes()
			x.OutputTruncated = x.OutputTruncated || total > x.StderrBytes
		}
		data := map[string]any{"executionId": x.ID, "status": string(x.Status)}
		if x.ExitCode != nil {
			data["exitCode"] = *x.ExitCode
		}
		return []Event{e.event(x.SandboxID, EventExecEnded, "system", data)}, nil
	}
	write := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := e.cfg.Store.UpdateExecution(ctx, id, end)
		return err
	}
	err := write()
	if err == nil {
		return
	}
	e.cfg.Log.Error("record the end of an execution; trying on", "execution", id, "err", err)
	e.mu.Lock()
	e.unsaved[id] = func(x *Execution) { _, _ = end(x) }
	e.mu.Unlock()
	e.background(func(ctx context.Context) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for err != nil && !fault.Is(err, fault.NotFound) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				err = write()
			}
		}
		e.mu.Lock()
		delete(e.unsaved, id)
		e.mu.Unlock()
		e.pulse.beat()
	})
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
// more.
func (e *Engine) endExecutions(ctx context.Context, sandboxID, why string, as ExecutionStatus) {
	open, err := e.cfg.Store.OpenExecutions(ctx)
	if err != nil {
		e.cfg.Log.Error("list open executions", "err", err)
		return
	}
	for _, x := range open {
		if x.SandboxID != sandboxID {
			continue
		}
		e.finish(x.ID, e.running(x.ID), func(x *Execution) { x.Status, x.Error = as, why })
		e.mu.Lock()
		if e.busy[sandboxID] == x.ID { // whoever still waits for it holds nobody up
			delete(e.busy, sandboxID)
		}
		e.mu.Unlock()
	}
}
