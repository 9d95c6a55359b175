package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// job finds a job in a sandbox the actor may use.
func (a *Actor) job(ctx context.Context, id string, op operation) (Job, error) {
	missing := fault.New(fault.NotFound, "no job %q", clip(id, 64)).About("job")
	j, err := a.e.cfg.Store.Job(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return Job{}, missing
	}
	if err != nil {
		return Job{}, err
	}
	if err := a.inside(ctx, j.SandboxID, op, missing); err != nil {
		return Job{}, err
	}
	a.e.mu.Lock()
	end := a.e.unsavedJobs[id]
	a.e.mu.Unlock()
	if end != nil {
		end(&j)
	}
	return j, err
}

// Jobs returns a page of the jobs of a sandbox.
func (a *Actor) Jobs(ctx context.Context, ref string, limit, offset int) ([]Job, int, error) {
	s, err := a.resolve(ctx, ref, "Jobs")
	if err != nil {
		return nil, 0, err
	}
	if limit, err = pageLimit(limit, offset); err != nil {
		return nil, 0, err
	}
	return a.e.cfg.Store.Jobs(ctx, s.ID, limit, offset)
}

// StopJob ends a job.
func (a *Actor) StopJob(ctx context.Context, id string, force bool) (Job, error) {
	j, err := a.job(ctx, id, "StopJob")
	if err != nil || j.Status.Done() {
		return j, err
	}
	if run := a.e.running(id); run != nil {
		if force {
			run.killOnce.Do(func() { close(run.kill) })
		}
		if err := a.halt(ctx, run); err != nil {
			return j, err
		}
	}
	return a.job(ctx, id, "StopJob")
}
