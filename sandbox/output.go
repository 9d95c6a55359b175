package sandbox

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// outputPath is where a stream of an execution or a job is kept: a folder for
// each sandbox, in it one for each command.
func (e *Engine) outputPath(sandboxID, id string, s Stream) string {
	return filepath.Join(e.cfg.OutputDir, sandboxID, id, string(s))
}

// openSpools opens the output of a command, or continues it.
func (e *Engine) openSpools(sandboxID, id string, lossy bool) (map[Stream]*spool, error) {
	spools := map[Stream]*spool{}
	for _, st := range []Stream{Stdout, Stderr} {
		sp, err := openSpool(e.outputPath(sandboxID, id, st), e.cfg.OutputCap, e.cfg.Now)
		if err != nil {
			for _, sp := range spools {
				sp.close()
				sp.release()
			}
			return nil, fault.Wrap(err, fault.Exhausted, "the output of the command cannot be kept; is the disk full?")
		}
		sp.lossy = lossy
		spools[st] = sp
	}
	return spools, nil
}

// forgetOutput removes what was printed in a sandbox.
func (e *Engine) forgetOutput(_ context.Context, sandboxID string) {
	if sandboxID == "" {
		return
	}
	e.mu.Lock()
	delete(e.kept, sandboxID)
	e.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(e.cfg.OutputDir, sandboxID)); err != nil {
		e.cfg.Log.Warn("remove the output of a sandbox", "sandbox", sandboxID, "err", err)
	}
}

// Output copies a stream of an execution to w.
func (a *Actor) Output(ctx context.Context, executionID string, st Stream, w io.Writer) error {
	return a.ExecutionOutput(ctx, executionID, st, OutputOptions{Follow: true}, w)
}

// ExecutionOutput copies a stream of an execution to w.
func (a *Actor) ExecutionOutput(ctx context.Context, executionID string, st Stream, o OutputOptions, w io.Writer) error {
	if err := checkStream(st, o); err != nil {
		return err
	}
	x, err := a.execution(ctx, executionID, "ExecutionOutput")
	if err != nil {
		return err
	}
	if o.Follow {
		defer a.e.attendance.attend(x.ID)()
	}
	return a.e.readOutput(ctx, x.SandboxID, x.ID, st, o, w)
}

// JobOutput copies a stream of a job to w.
func (a *Actor) JobOutput(ctx context.Context, id string, st Stream, o OutputOptions, w io.Writer) error {
	if err := checkStream(st, o); err != nil {
		return err
	}
	j, err := a.job(ctx, id, "JobOutput")
	if err != nil {
		return err
	}
	return a.e.readOutput(ctx, j.SandboxID, j.ID, st, o, w)
}
