package api

import (
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) createJob(r *request) (any, error) {
	var body JobRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	if c := body.Streams; c != nil {
		if _, err := (&StreamConfig{Stdout: c.Stdout, Stderr: c.Stderr}).stdin(); err != nil {
			return nil, err
		}
	}
	j, err := r.ops.CreateJob(r.Context(), r.PathValue("id"), sandbox.JobRequest{Command: body.Command, Env: body.Env, Dir: body.Dir, User: body.User})
	if err != nil {
		return nil, err
	}
	return s.jobAnswer(r, j), nil
}

// jobAnswer is a job with the URLs of its streams.
func (s *server) jobAnswer(r *request, j sandbox.Job) Job {
	out := jobShape(j)
	_, out.StdoutStreamURL, out.StderrStreamURL = s.streamURLs(r, j.ID, nil)
	return out
}

func (s *server) jobs(r *request) (any, error) {
	q := query{r.URL.Query()}
	limit, err := q.limit(100)
	if err != nil {
		return nil, err
	}
	offset, err := q.number("offset", 0)
	if err != nil {
		return nil, err
	}
	found, total, err := r.ops.Jobs(r.Context(), r.PathValue("id"), limit, offset)
	if err != nil {
		return nil, err
	}
	out := JobList{Jobs: []Job{}, Total: total}
	for _, j := range found {
		out.Jobs = append(out.Jobs, s.jobAnswer(r, j))
	}
	return out, nil
}

func (s *server) job(r *request) (any, error) {
	var wait time.Duration
	if err := parse("wait", r.URL.Query().Get("wait"), sandbox.ParseDuration, &wait); err != nil {
		return nil, err
	}
	j, err := jobOf(r)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		if j, err = r.ops.Job(r.Context(), j.ID, min(wait, maxWait)); err != nil {
			return nil, err
		}
	}
	return s.jobAnswer(r, j), nil
}

func (s *server) stopJob(r *request) (any, error) {
	force, _, err := query{r.URL.Query()}.boolean("force")
	if err != nil {
		return nil, err
	}
	j, err := jobOf(r)
	if err != nil {
		return nil, err
	}
	if j, err = r.ops.StopJob(r.Context(), j.ID, force); err != nil {
		return nil, err
	}
	return s.jobAnswer(r, j), nil
}

// jobOf is the job of the path, if it is one of the sandbox of the path.
func jobOf(r *request) (sandbox.Job, error) {
	sb, err := r.ops.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return sandbox.Job{}, err
	}
	j, err := r.ops.Job(r.Context(), r.PathValue("job"), 0)
	if err == nil && j.SandboxID != sb.ID {
		err = fault.New(fault.NotFound, "sandbox %s has no job %q", sb.ID, clip(r.PathValue("job"))).About("job")
	}
	return j, err
}
