package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

var (
	_ JobOperations       = (*Actor)(nil)
	_ ExecutionOperations = (*Actor)(nil)
	_ EventOperations     = (*Actor)(nil)
)

// recordTime bounds writing down that a job runs, for a caller who is gone.
const recordTime = time.Minute

// CreateJob starts a command in the background.
func (a *Actor) CreateJob(ctx context.Context, ref string, r JobRequest) (Job, error) {
	if err := validateCommand(r.Command); err != nil {
		return Job{}, err
	}
	if err := validateEnv(r.Env); err != nil {
		return Job{}, err
	}
	s, err := a.ready(ctx, ref, "CreateJob")
	if err != nil {
		return Job{}, err
	}
	j, err := a.e.startJob(ctx, s, r, a.who.ID)
	return j, a.e.explain(ctx, s.ID, err)
}

// startJob records a job as pending, starts it, and records that it runs. The
// record comes first, so that no job ever runs that nobody knows of.
func (e *Engine) startJob(ctx context.Context, s Sandbox, r JobRequest, by string) (Job, error) {
	j := Job{ID: e.cfg.NewID(prefixJob), SandboxID: s.ID, Status: JobPending, Command: r.Command, CreatedAt: e.cfg.Now()}
	run, err := e.holdJob(j, true)
	if err != nil {
		return Job{}, err
	}
	endActivity := e.begin(s.ID)
	if err := e.cfg.Store.CreateJob(ctx, j, e.event(s.ID, EventJobCreated, by, map[string]any{"jobId": j.ID})); err != nil {
		endActivity()
		e.letJobGo(run)
		return Job{}, err
	}
	cmd := guest.Command{
		ID: j.ID, Label: "job", Args: r.Command, Env: s.environment(assignmentsOf(r.Env)), Dir: r.Dir, User: r.User,
		NoStdin: true, Keep: true,
	}
	proc, err := e.start(ctx, s.ID, cmd, run.output())
	if err == nil {
		run.attached(proc)
		// The caller may be gone; the job runs, and that is recorded.
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		if j, err = e.jobRuns(rctx, j.ID, by); err != nil {
			_, _ = e.killOff(proc, closedChannel(), 0)
		}
	}
	if err != nil {
		e.finishJob(run.id, run, func(j *Job) { j.Status, j.Error = JobFailed, fault.From(err).Error() })
		endActivity()
		e.letJobGo(run)
		e.pulse.beat()
		return Job{}, err
	}
	e.pulse.beat()
	e.followJob(run, endActivity)
	return j, nil
}

// jobRuns records that a job has been started.
func (e *Engine) jobRuns(ctx context.Context, id, by string) (Job, error) {
	return e.cfg.Store.UpdateJob(ctx, id, func(j *Job) ([]Event, error) {
		if j.Status != JobPending {
			return nil, fault.New(fault.State, "job %s has ended", id).About("job")
		}
		j.Status, j.StartedAt = JobRunning, e.cfg.Now()
		return []Event{e.event(j.SandboxID, EventJobStarted, by, map[string]any{"jobId": id})}, nil
	})
}

// closedChannel is one that nobody waits for.
func closedChannel() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// holdJob opens the output of a job, and takes one of the places a sandbox has
// for jobs when bounded is set: those of an earlier server have theirs.
func (e *Engine) holdJob(j Job, bounded bool) (*command, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if bounded && e.jobs[j.SandboxID] >= e.cfg.MaxJobs {
		return nil, fault.New(fault.Exhausted, "sandbox %s has %d jobs running, as many as it may; stop one first", j.SandboxID, e.jobs[j.SandboxID]).About("sandbox")
	}
	spools, err := e.openSpools(j.SandboxID, j.ID, true)
	if err != nil {
		return nil, err
	}
	e.jobs[j.SandboxID]++
	return e.newCommand(j.ID, j.SandboxID, spools), nil
}

// letJobGo undoes holdJob.
func (e *Engine) letJobGo(run *command) {
	e.mu.Lock()
	if e.jobs[run.sandboxID]--; e.jobs[run.sandboxID] <= 0 {
		delete(e.jobs, run.sandboxID)
	}
	e.mu.Unlock()
	e.letGo(run)
}

// followJob waits for the end of a job in the background and records it.
func (e *Engine) followJob(run *command, endActivity func()) {
	e.background(func(context.Context) {
		o, ok := e.outcomeOf(run, nil, e.cfg.JobGrace)
		if !ok {
			return
		}
		e.finishJob(run.id, run, func(j *Job) {
			j.ExitCode, j.Error = o.code, o.reason
			switch {
			case o.how == wasStopped:
				j.Status = JobCancelled
			case o.how == hasExited && *o.code == 0:
				j.Status = JobCompleted
			default:
				j.Status = JobFailed
			}
		})
		endActivity()
		e.letJobGo(run)
		e.pulse.beat()
	})
}

// finishJob writes the end of a job once, as finish does for an execution.
func (e *Engine) finishJob(id string, run *command, set func(*Job)) {
	ended := e.cfg.Now()
	sandboxID := ""
	end := func(j *Job) ([]Event, error) {
		sandboxID = j.SandboxID
		if j.Status.Done() {
			return nil, nil
		}
		set(j)
		j.EndedAt = ended
		run.measure(&j.StdoutBytes, &j.StderrBytes, &j.OutputTruncated)
		data := map[string]any{"jobId": j.ID, "status": string(j.Status)}
		if j.ExitCode != nil {
			data["exitCode"] = *j.ExitCode
		}
		return []Event{e.event(j.SandboxID, EventJobEnded, "system", data)}, nil
	}
	keep := func(yes bool) {
		if delete(e.unsavedJobs, id); yes {
			e.unsavedJobs[id] = func(j *Job) { _, _ = end(j) }
		}
	}
	e.persist(id, keep, func(ctx context.Context) error {
		j, err := e.cfg.Store.UpdateJob(ctx, id, end)
		if err == nil {
			e.recorded(sandboxID, id, j.StdoutBytes+j.StderrBytes)
		}
		return err
	})
}

// endJobs records the end of the jobs of a sandbox that is no more.
func (e *Engine) endJobs(ctx context.Context, sandboxID, why string, as JobStatus) {
	open, err := e.cfg.Store.OpenJobs(ctx, sandboxID)
	if err != nil {
		e.cfg.Log.Error("list open jobs", "err", err)
		return
	}
	for _, j := range open {
		e.finishJob(j.ID, e.running(j.ID), func(j *Job) { j.Status, j.Error = as, why })
	}
}

// reconcileJobs takes up the jobs that run on, and records the end of those
// that are lost.
func (e *Engine) reconcileJobs(ctx context.Context, r *Reconciliation) {
	open, err := e.cfg.Store.OpenJobs(ctx, "")
	if err != nil {
		e.cfg.Log.Error("list open jobs", "err", err)
		return
	}
	for _, j := range open {
		s, err := e.cfg.Store.Sandbox(ctx, j.SandboxID)
		if err == nil && s.Driver != e.cfg.Driver.Name() {
			continue
		}
		if err := e.adoptJob(ctx, s, j, r); err != nil {
			e.cfg.Log.Warn("a job was lost", "job", j.ID, "sandbox", j.SandboxID, "err", err)
			why := "lost when the server stopped"
			if j.Status == JobPending {
				why = "the server stopped before it was started"
			}
			e.finishJob(j.ID, nil, func(j *Job) { j.Status, j.Error = JobFailed, why })
			continue
		}
		r.Jobs++
	}
}

// adoptJob takes up a job that an earlier server started.
func (e *Engine) adoptJob(ctx context.Context, s Sandbox, j Job, r *Reconciliation) error {
	run, err := e.holdJob(j, false)
	if err != nil {
		return err
	}
	err = e.takeUp(ctx, s, run, r)
	if err == nil && j.Status == JobPending {
		// That server died between the start and the word of it.
		_, err = e.jobRuns(ctx, j.ID, "system")
	}
	if err != nil {
		e.letJobGo(run)
		return err
	}
	e.followJob(run, e.begin(j.SandboxID))
	return nil
}

// Job returns one job.
func (a *Actor) Job(ctx context.Context, id string, wait time.Duration) (Job, error) {
	j, err := a.job(ctx, id, "Job")
	if err != nil || wait <= 0 || j.Status.Done() {
		return j, err
	}
	if err := a.e.waitEnd(ctx, id, wait); err != nil {
		return j, err
	}
	return a.job(ctx, id, "Job")
}
