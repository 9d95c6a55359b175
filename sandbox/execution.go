package sandbox

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// ExitTimeout is the exit code of an execution that ran out of time, as with
// timeout(1).
const ExitTimeout = 124

// killGrace is how long a command has between SIGTERM and SIGKILL.
const killGrace = 5 * time.Second

// runningExec is an execution under way.
type runningExec struct {
	id, sandboxID string
	proc          *process
	spools        map[Stream]*spool
	started       chan struct{} // closed when proc is set
	done          chan struct{} // closed when the record has its end
	stop          context.CancelCauseFunc
}

// Why an execution is stopped before its end.
var (
	errExecTimeout   = errors.New("timed out")
	errExecCancelled = errors.New("cancelled")
)

func (e *Engine) running(executionID string) *runningExec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[executionID]
}

// Execute starts a recorded execution.
func (a *Actor) Execute(ctx context.Context, ref string, r ExecRequest) (Execution, error) {
	if err := validateCommand(r.Command); err != nil {
		return Execution{}, err
	}
	if err := validateEnv(r.Env); err != nil {
		return Execution{}, err
	}
	if err := validateFiles(r.Files); err != nil {
		return Execution{}, err
	}
	if r.Timeout < 0 {
		return Execution{}, fault.InvalidField("timeout", "must not be negative")
	}
	s, err := a.ready(ctx, ref)
	if err != nil {
		return Execution{}, err
	}
	x, err := a.e.execute(ctx, s, r, a.who.ID)
	return x, a.e.explain(ctx, s.ID, err)
}

// execute holds the sandbox, starts the command, records it, and follows it in
// the background.
func (e *Engine) execute(ctx context.Context, s Sandbox, r ExecRequest, by string) (Execution, error) {
	x := Execution{
		ID: e.cfg.NewID(prefixExecution), SandboxID: s.ID, Status: ExecRunning, Command: r.Command,
		Timeout: r.Timeout, CreatedAt: e.cfg.Now(),
	}
	for _, t := range []time.Duration{s.Timeouts.Execution, e.cfg.ExecTimeout} {
		if x.Timeout == 0 {
			x.Timeout = t
		}
	}
	run, err := e.hold(&x)
	if err != nil {
		return Execution{}, err
	}
	endActivity := e.begin(s.ID)
	fail := func(err error) (Execution, error) {
		endActivity()
		e.letGo(run)
		return Execution{}, err
	}
	conn, err := e.conns.get(ctx, s.ID)
	if err == nil {
		err = writeFiles(ctx, conn, r.Files)
	}
	if err != nil {
		return fail(err)
	}
	env := make([]string, 0, len(r.Env))
	for k, v := range r.Env {
		env = append(env, k+"="+v)
	}
	cmd := guest.Command{ID: x.ID, Label: "execution", Args: r.Command, Env: s.environment(env), Dir: r.Dir, User: r.User, NoStdin: !r.Stdin}
	x.StartedAt = e.cfg.Now()

	// The record is written while the process starts: the answer waits for
	// both, so it is durable, and costs only the longer of the two.
	recorded := make(chan error, 1)
	go func() {
		recorded <- e.cfg.Store.CreateExecution(ctx, x, e.event(s.ID, EventExecStarted, by, map[string]any{"executionId": x.ID}))
	}()
	proc, err := e.start(ctx, s.ID, cmd, guest.Output{Stdout: run.spools[Stdout], Stderr: run.spools[Stderr]})
	rerr := <-recorded
	switch {
	case err != nil && rerr == nil:
		e.finish(x.ID, run, func(x *Execution) { x.Status, x.Error = ExecFailed, fault.From(err).Error() })
		return fail(err)
	case err != nil:
		return fail(err)
	case rerr != nil:
		_ = proc.Signal(context.WithoutCancel(ctx), "KILL")
		proc.Close()
		return fail(rerr)
	}
	e.pulse.beat()
	e.follow(run, proc, x, x.Timeout, endActivity)
	return x, nil
}

// hold reserves the sandbox for one execution and opens its output.
func (e *Engine) hold(x *Execution) (*runningExec, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.busy[x.SandboxID]; other != "" {
		return nil, fault.New(fault.Busy, "sandbox %s is busy with %s; wait for it or cancel it", x.SandboxID, other).About("sandbox")
	}
	run := &runningExec{id: x.ID, sandboxID: x.SandboxID, spools: map[Stream]*spool{}, started: make(chan struct{}), done: make(chan struct{})}
	for _, st := range []Stream{Stdout, Stderr} {
		sp, err := openSpool(e.outputPath(x.ID, st), e.cfg.OutputCap)
		if err != nil {
			for _, sp := range run.spools {
				sp.file.Close()
			}
			return nil, fault.Wrap(err, fault.Exhausted, "the output of the command cannot be kept; is the disk full?")
		}
		run.spools[st] = sp
	}
	e.busy[x.SandboxID] = x.ID
	e.active[x.ID] = run
	return run, nil
}

// letGo undoes hold.
func (e *Engine) letGo(run *runningExec) {
	for _, sp := range run.spools {
		sp.close()
	}
	e.mu.Lock()
	delete(e.active, run.id)
	if e.busy[run.sandboxID] == run.id {
		delete(e.busy, run.sandboxID)
	}
	e.mu.Unlock()
	close(run.done)
	e.background(func(context.Context) {
		for _, sp := range run.spools {
			sp.release()
		}
	})
}

// follow waits for the end of an execution in the background, ends it when its
// time is up, and records how it ended.
func (e *Engine) follow(run *runningExec, proc *process, x Execution, left time.Duration, endActivity func()) {
	ctx, stop := context.WithCancelCause(e.ctx)
	run.proc, run.stop = proc, stop
	close(run.started)
	e.background(func(context.Context) {
		defer stop(nil)
		timer := time.AfterFunc(left, func() { stop(errExecTimeout) })
		defer timer.Stop()
		exit, err := proc.Wait(ctx)
		cause := context.Cause(ctx)
		if e.ctx.Err() != nil {
			// The server stops; the command goes on and the next server
			// finds it again.
			proc.Close()
			for _, sp := range run.spools {
				sp.close()
			}
			return
		}
		if err != nil && (errors.Is(cause, errExecTimeout) || errors.Is(cause, errExecCancelled)) {
			exit, err = e.kill(proc)
		}
		e.finish(x.ID, run, func(x *Execution) {
			code := exit.Status()
			if err != nil {
				code = 128 + 9 // it was killed and did not tell
			}
			switch {
			case errors.Is(cause, errExecTimeout):
				code = ExitTimeout
				x.Status, x.ExitCode, x.Error = ExecTimeout, &code, "timed out after "+FormatDuration(x.Timeout)
			case errors.Is(cause, errExecCancelled):
				x.Status, x.ExitCode, x.Error = ExecCancelled, &code, "cancelled"
			case err != nil:
				x.Status, x.Error = ExecFailed, fault.From(err).Error()
			case code == 0:
				x.Status, x.ExitCode = ExecCompleted, &code
			default:
				x.Status, x.ExitCode = ExecFailed, &code
			}
		})
		endActivity()
		e.letGo(run)
		e.pulse.beat()
		e.afterExecution(x)
	})
}

// kill ends a process: SIGTERM, then SIGKILL.
func (e *Engine) kill(proc *process) (guest.Exit, error) {
	ctx, cancel := context.WithTimeout(e.ctx, 2*killGrace)
	defer cancel()
	_ = proc.Signal(ctx, "TERM") // Wait tells what came of it
	grace, gcancel := context.WithTimeout(ctx, killGrace)
	defer gcancel()
	if exit, err := proc.Wait(grace); err == nil || grace.Err() == nil {
		return exit, err
	}
	_ = proc.Signal(ctx, "KILL")
	return proc.Wait(ctx)
}

// Execution returns one execution.
func (a *Actor) Execution(ctx context.Context, id string, wait time.Duration) (Execution, error) {
	x, err := a.execution(ctx, id)
	if err != nil || wait <= 0 || x.Status.Done() {
		return x, err
	}
	run := a.e.running(id)
	if run == nil {
		return a.execution(ctx, id)
	}
	timer := time.NewTimer(min(wait, 10*time.Minute))
	defer timer.Stop()
	select {
	case <-run.done:
	case <-timer.C:
	case <-ctx.Done():
		return x, ctx.Err()
	}
	return a.execution(ctx, id)
}

// Executions lists those of one sandbox, newest first.
func (a *Actor) Executions(ctx context.Context, ref string, limit int) ([]Execution, error) {
	s, err := a.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if limit < 0 {
		return nil, fault.InvalidField("limit", "must not be negative")
	}
	return a.e.cfg.Store.Executions(ctx, s.ID, limit)
}

// Cancel ends an execution. Cancelling one that has ended does nothing.
func (a *Actor) Cancel(ctx context.Context, executionID string) error {
	if _, err := a.execution(ctx, executionID); err != nil {
		return err
	}
	run := a.e.running(executionID)
	if run == nil {
		return nil
	}
	select {
	case <-run.started:
		run.stop(errExecCancelled)
	case <-run.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WriteStdin copies r to the stdin of an execution and closes it at the end.
// When it returns before r has ended, r may still be read from once.
func (a *Actor) WriteStdin(ctx context.Context, executionID string, r io.Reader) error {
	if _, err := a.execution(ctx, executionID); err != nil {
		return err
	}
	run := a.e.running(executionID)
	if run == nil {
		return fault.New(fault.State, "execution %s has ended", executionID).About("execution")
	}
	select {
	case <-run.started:
	case <-run.done:
		return fault.New(fault.State, "execution %s has ended", executionID).About("execution")
	case <-ctx.Done():
		return ctx.Err()
	}
	// The command may end while r has nothing to give: the copying is then
	// left behind, and ends with the caller's reader.
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(run.proc, r)
		if err == nil {
			err = run.proc.CloseWrite()
		}
		copied <- err
	}()
	select {
	case err := <-copied:
		select {
		case <-run.done: // it ended without reading the rest: not an error
			return nil
		default:
			return err
		}
	case <-run.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
