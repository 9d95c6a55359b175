package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxWait bounds how long one call waits for the end of a command.
const maxWait = 10 * time.Minute

// Execution returns one execution.
func (a *Actor) Execution(ctx context.Context, id string, wait time.Duration) (Execution, error) {
	x, err := a.execution(ctx, id, "Execution")
	if err != nil || wait <= 0 || x.Status.Done() {
		return x, err
	}
	defer a.e.attendance.attend(id)()
	if err := a.e.waitEnd(ctx, id, wait); err != nil {
		return x, err
	}
	return a.execution(ctx, id, "Execution")
}

// waitEnd waits for the end of a command, if it is under way, for at most wait.
func (e *Engine) waitEnd(ctx context.Context, id string, wait time.Duration) error {
	run := e.running(id)
	if run == nil {
		return nil
	}
	timer := time.NewTimer(min(wait, maxWait))
	defer timer.Stop()
	select {
	case <-run.done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Executions lists those of one sandbox, newest first.
func (a *Actor) Executions(ctx context.Context, ref string, limit int) ([]Execution, error) {
	s, err := a.resolve(ctx, ref, "Executions")
	if err != nil {
		return nil, err
	}
	if limit < 0 {
		return nil, fault.InvalidField("limit", "must not be negative")
	}
	return a.e.cfg.Store.Executions(ctx, s.ID, limit)
}

// ExecutionHistory returns a page of the executions of a sandbox.
func (a *Actor) ExecutionHistory(ctx context.Context, ref string, limit, offset int) ([]Execution, int, error) {
	s, err := a.resolve(ctx, ref, "ExecutionHistory")
	if err != nil {
		return nil, 0, err
	}
	if limit, err = pageLimit(limit, offset); err != nil {
		return nil, 0, err
	}
	return a.e.cfg.Store.ExecutionHistory(ctx, s.ID, limit, offset)
}

// pageLimit checks which page is asked for.
func pageLimit(limit, offset int) (int, error) {
	switch {
	case limit == 0:
		limit = 50
	case limit < 0 || limit > 100:
		return 0, fault.InvalidField("limit", "must be 1 to 100")
	}
	if offset < 0 {
		return 0, fault.InvalidField("offset", "must not be negative")
	}
	return limit, nil
}

// WriteStdin copies r to the stdin of an execution and closes it at the end.
// When it returns before r has ended, r may still be read from once.
func (a *Actor) WriteStdin(ctx context.Context, executionID string, r io.Reader) error {
	if _, err := a.execution(ctx, executionID, "WriteStdin"); err != nil {
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
	proc := run.process()
	if proc == nil {
		return fault.New(fault.State, "execution %s is paused; resume its sandbox first", executionID).About("execution")
	}
	defer a.e.attendance.attend(executionID)()
	// The command may end while r has nothing to give: the copying is then
	// left behind, and ends with the caller's reader.
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(proc, r)
		if err == nil {
			err = proc.CloseWrite()
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
