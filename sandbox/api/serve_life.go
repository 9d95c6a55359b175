package api

import (
	"errors"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) pause(r *request) (any, error) {
	sb, err := r.ops.Pause(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return beside{data: s.sandboxAnswer(r, sb, nil), also: struct {
		SandboxID    string    `json:"sandboxId"`
		Status       string    `json:"status"`
		TerminatesAt time.Time `json:"terminatesAt,omitzero"`
	}{sb.ID, string(sb.Status), sb.TerminatesAt.UTC()}}, nil
}

func (s *server) resume(r *request) (any, error) {
	sb, err := r.ops.Resume(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(r, sb, nil), nil
}

// sandboxAnswer describes a sandbox together with the snapshot it was made
// from. known remembers snapshots from one sandbox of a list to the next; it
// may be nil.
func (s *server) sandboxAnswer(r *request, sb sandbox.Sandbox, known map[string]*SnapshotRef) Sandbox {
	out := sandboxShape(sb)
	if sb.SnapshotID == "" {
		return out
	}
	if out.Snapshot = known[sb.SnapshotID]; out.Snapshot != nil {
		return out
	}
	p, err := r.ops.Snapshot(r.Context(), sb.SnapshotID)
	if err != nil { // it is gone, or not to be seen any more: what the record has
		p = sandbox.Snapshot{ID: sb.SnapshotID, Tag: sb.SnapshotTag}
	}
	out.Snapshot = snapshotRefShape(p)
	if known != nil {
		known[sb.SnapshotID] = out.Snapshot
	}
	return out
}

func (s *server) setEnv(r *request) (any, error) {
	var body EnvRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	all, err := r.ops.SetEnv(r.Context(), r.PathValue("id"), body.Env)
	if err != nil {
		return nil, err
	}
	return Env{Env: all}, nil
}

func (s *server) update(r *request) (any, error) {
	var body UpdateRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	req := sandbox.UpdateRequest{Name: body.Name, Description: body.Description}
	if body.Network != nil {
		req.Network = &sandbox.Network{Allow: body.Network.Allow}
	}
	if body.Resources != nil {
		limits, err := body.Resources.domain()
		if err != nil {
			return nil, err
		}
		req.Limits = &limits
	}
	if body.Timeout != nil {
		// The engine replaces them all; what is left out is as it is now.
		sb, err := r.ops.Get(r.Context(), r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		if err := body.Timeout.over(&sb.Timeouts); err != nil {
			return nil, err
		}
		req.Timeouts = &sb.Timeouts
	}
	sb, err := r.ops.Update(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(r, sb, nil), nil
}

// domain reads the limits; nil is none.
func (q *Resources) domain() (l sandbox.Limits, err error) {
	if q == nil {
		return l, nil
	}
	return l, errors.Join(
		parse("resources.memory", q.Memory, sandbox.ParseBytes, &l.MemoryBytes),
		parse("resources.cpu", q.CPU, sandbox.ParseCPU, &l.CPUMillis),
		parse("resources.disk", q.Disk, sandbox.ParseBytes, &l.DiskBytes))
}

// over reads the timeouts into t and leaves in it those that are not given;
// nil gives none.
func (q *Timeouts) over(t *sandbox.Timeouts) error {
	if q == nil {
		return nil
	}
	for _, f := range []struct {
		field, value string
		to           *time.Duration
	}{{"timeout.idle", q.Idle, &t.Idle}, {"timeout.execution", q.Execution, &t.Execution}, {"timeout.paused", q.Paused, &t.Paused}} {
		if err := parse(f.field, f.value, sandbox.ParseDuration, f.to); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) fork(r *request) (any, error) {
	var body ForkRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	req := sandbox.ForkRequest{Name: body.Name, Description: body.Description, InheritEnv: body.InheritEnv, Env: body.Env}
	var err error
	if req.Limits, err = body.Resources.domain(); err != nil {
		return nil, err
	}
	if body.Timeout != nil {
		first, err := r.ops.Get(r.Context(), r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		if err := body.Timeout.over(&first.Timeouts); err != nil {
			return nil, err
		}
		req.Timeouts = &first.Timeouts
	}
	sb, err := r.ops.Fork(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(r, sb, nil), nil
}

func (s *server) usage(r *request) (any, error) {
	u, err := r.ops.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return usageShape(u), nil
}

func (s *server) stats(r *request) (any, error) {
	q := query{r.URL.Query()}
	start, err := q.moment("start")
	if err != nil {
		return nil, err
	}
	end, err := q.moment("end")
	if err != nil {
		return nil, err
	}
	st, err := r.ops.Stats(r.Context(), q.Get("orgId"), start, end)
	if err != nil {
		return nil, err
	}
	return statsShape(st), nil
}

// moment reads a time; without one it is zero.
func (q query) moment(name string) (time.Time, error) {
	v := q.Get(name)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return t, fault.InvalidField(name, "%q is not a time; write it as 2027-01-31T12:00:00Z", clip(v))
	}
	return t, nil
}
