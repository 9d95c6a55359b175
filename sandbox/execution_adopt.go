package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// takeUpTime bounds how long a start waits for a sandbox to answer.
const takeUpTime = 3 * time.Second

// reconcileExecutions takes up the commands and jobs that run on, and records
// the end of those that are lost, and of those that were queued.
func (e *Engine) reconcileExecutions(ctx context.Context, r *Reconciliation) {
	open, err := e.cfg.Store.OpenExecutions(ctx)
	if err != nil {
		e.cfg.Log.Error("list open executions", "err", err)
		return
	}
	for _, x := range open {
		s, err := e.cfg.Store.Sandbox(ctx, x.SandboxID)
		if err == nil && s.Driver != e.cfg.Driver.Name() {
			continue
		}
		if x.Status == ExecQueued {
			e.finish(x.ID, nil, func(x *Execution) { x.Status, x.Error = ExecCancelled, "the server stopped before its turn" })
			continue
		}
		if err := e.adopt(ctx, s, x, r); err != nil {
			e.cfg.Log.Warn("an execution was lost", "execution", x.ID, "sandbox", x.SandboxID, "err", err)
			e.finish(x.ID, nil, func(x *Execution) {
				x.Status, x.Error = ExecFailed, "lost when the server stopped"
			})
			e.afterExecution(x)
			continue
		}
		r.Executions++
	}
	e.reconcileJobs(ctx, r)
}

// adopt takes up an execution that an earlier server started.
func (e *Engine) adopt(ctx context.Context, s Sandbox, x Execution, r *Reconciliation) error {
	run, err := e.hold(&x, false)
	if err != nil {
		return err
	}
	if err := e.takeUp(ctx, s, run, r); err != nil {
		e.letGo(run)
		return err
	}
	paused, err := e.pausedSince(ctx, x.SandboxID, x.StartedAt)
	if err != nil {
		e.cfg.Log.Warn("find out how long a sandbox was paused", "sandbox", x.SandboxID, "err", err)
	}
	left := max(x.Timeout+paused-e.cfg.Now().Sub(x.StartedAt), 0)
	e.follow(run, x, left, e.begin(x.SandboxID))
	return nil
}

// takeUp attaches to a command of an earlier server. The output continues where
// that server left it. One whose sandbox is paused with its memory is waited
// for, and so is one whose sandbox does not answer: it holds up no start, and
// whoever follows the command tries on.
func (e *Engine) takeUp(ctx context.Context, s Sandbox, run *command, r *Reconciliation) error {
	if s.asleep() {
		run.sleeps()
		return nil
	}
	if r.silent[s.ID] {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	proc, err := e.attach(short, run.sandboxID, run.id, run.offset(), run.output())
	if e.silent(ctx, s.ID, err) {
		e.cfg.Log.Warn("a sandbox does not answer; what runs in it is taken up when it does", "sandbox", s.ID, "err", err)
		if r.silent == nil {
			r.silent = map[string]bool{}
		}
		r.silent[s.ID] = true
		return nil
	}
	if err != nil {
		return fault.From(err)
	}
	run.attached(proc)
	return nil
}
