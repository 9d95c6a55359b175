package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// ExitTimeout is the exit code of an execution that ran out of time, as with
// timeout(1).
const ExitTimeout = 124

// killGrace is how long an execution has between SIGTERM and SIGKILL.
const killGrace = 5 * time.Second

// ExecutionOperations are what an Actor can do with executions besides
// Operations.
type ExecutionOperations interface {
	// ExecutionHistory returns a page of the executions of a sandbox, newest
	// first, and how many there are. limit is 1 to 100; 0 is 50.
	ExecutionHistory(ctx context.Context, ref string, limit, offset int) ([]Execution, int, error)
	// ExecutionOutput copies a stream of an execution to w, from its
	// beginning, and goes on until the execution has ended when Follow is set.
	// Lines are stamped with the time at which their first byte came, to a
	// millisecond, or a coarser step in an output that comes in very many
	// pieces. Output that is no longer kept is empty.
	ExecutionOutput(ctx context.Context, id string, s Stream, o OutputOptions, w io.Writer) error
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
	s, resumed, err := a.awake(ctx, ref, "Execute", whyUsed)
	if err != nil {
		return Execution{}, err
	}
	r.autoResumed, r.who = resumed, a.who
	x, err := a.e.execute(ctx, s, r, a.who.ID)
	return x, a.e.explain(ctx, s.ID, err)
}

// execute holds the sandbox, starts the command, records it, and follows it in
// the background; or it puts the command into the queue of the sandbox.
func (e *Engine) execute(ctx context.Context, s Sandbox, r ExecRequest, by string) (Execution, error) {
	x := Execution{
		ID: e.cfg.NewID(prefixExecution), SandboxID: s.ID, Status: ExecRunning, Command: r.Command,
		Timeout: r.Timeout, AutoResumed: r.autoResumed, CreatedAt: e.cfg.Now(),
	}
	for _, t := range []time.Duration{s.Timeouts.Execution, e.cfg.ExecTimeout} {
		if x.Timeout == 0 {
			x.Timeout = t
		}
	}
	run, err := e.hold(&x, r.Queue)
	if err != nil {
		return Execution{}, err
	}
	endActivity := e.begin(s.ID)
	if !run.hasTurn() {
		return e.enqueue(ctx, x, r, by, run, endActivity)
	}
	x, err = e.launch(ctx, s, r, x, run, func(x Execution) error {
		return e.cfg.Store.CreateExecution(ctx, x, e.event(s.ID, EventExecStarted, by, map[string]any{"executionId": x.ID}))
	})
	if err != nil {
		endActivity()
		e.letGo(run)
		return Execution{}, err
	}
	e.pulse.beat()
	e.follow(run, x, x.Timeout, endActivity)
	return x, nil
}

// launch writes the files, starts the command and records it. On error nothing
// runs; whoever called lets the sandbox go.
func (e *Engine) launch(ctx context.Context, s Sandbox, r ExecRequest, x Execution, run *command, record func(Execution) error) (Execution, error) {
	conn, err := e.conns.get(ctx, s.ID)
	if err == nil {
		err = writeFiles(ctx, conn, r.Files)
	}
	if err != nil {
		return x, err
	}
	cmd := guest.Command{
		ID: x.ID, Label: "execution", Args: r.Command, Env: s.environment(assignmentsOf(r.Env)), Dir: r.Dir, User: r.User,
		NoStdin: !r.Stdin, Keep: true,
	}
	x.Status, x.StartedAt = ExecRunning, e.cfg.Now()

	// The record is written while the process starts: the answer waits for
	// both, so it is durable, and costs only the longer of the two.
	recorded := make(chan error, 1)
	go func() { recorded <- record(x) }()
	proc, err := e.start(ctx, s.ID, cmd, run.output())
	rerr := <-recorded
	switch {
	case err != nil && rerr == nil:
		e.finish(x.ID, run, func(x *Execution) { x.Status, x.Error = ExecFailed, fault.From(err).Error() })
		return x, err
	case err != nil:
		return x, err
	case rerr != nil:
		_ = proc.Signal(context.WithoutCancel(ctx), "KILL")
		proc.Close()
		return x, rerr
	}
	run.attached(proc)
	return x, nil
}

// assignmentsOf turns variables into the form of an environment.
func assignmentsOf(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	return env
}

// follow waits for the end of an execution in the background, ends it when its
// time is up, and records how it ended.
func (e *Engine) follow(run *command, x Execution, left time.Duration, endActivity func()) {
	clock := newCountdown(left, func() { run.stop(errExecTimeout) })
	e.background(func(context.Context) {
		defer clock.stop()
		o, ok := e.outcomeOf(run, clock, killGrace)
		if !ok {
			return
		}
		e.finish(x.ID, run, func(x *Execution) {
			x.ExitCode, x.Error = o.code, o.reason
			switch o.how {
			case ranOut:
				code := ExitTimeout
				x.Status, x.ExitCode, x.Error = ExecTimeout, &code, "timed out after "+FormatDuration(x.Timeout)
			case wasStopped:
				x.Status, x.Error = ExecCancelled, "cancelled"
			case wasLost:
				x.Status = ExecFailed
			case hasExited:
				x.Status = ExecCompleted
				if *o.code != 0 {
					x.Status = ExecFailed
				}
			}
		})
		endActivity()
		e.letGo(run)
		e.pulse.beat()
		e.afterExecution(x)
	})
}
