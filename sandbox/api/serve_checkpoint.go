package api

import (
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) createCheckpoint(r *request) (any, error) {
	var body CheckpointRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	c, err := r.ops.CreateCheckpoint(r.Context(), r.PathValue("id"), body.Name)
	if err != nil {
		return nil, err
	}
	return checkpointShape(c), nil
}

func (s *server) checkpoints(r *request) (any, error) {
	all, err := r.ops.Checkpoints(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	out := CheckpointList{Checkpoints: []Checkpoint{}}
	for _, c := range all {
		out.Checkpoints = append(out.Checkpoints, checkpointShape(c))
	}
	return out, nil
}

func (s *server) restoreCheckpoint(r *request) (any, error) {
	sb, err := r.ops.RestoreCheckpoint(r.Context(), r.PathValue("id"), r.PathValue("checkpoint"))
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(r, sb, nil), nil
}

func (s *server) deleteCheckpoint(r *request) (any, error) {
	return nil, r.ops.DeleteCheckpoint(r.Context(), r.PathValue("id"), r.PathValue("checkpoint"))
}

// maxChanges bounds how many changes one answer has.
const maxChanges = 100_000

// changePage reads which of many changes are asked for.
func (q query) changePage() (offset, limit int, err error) {
	if limit, err = q.number("limit", 10_000); err != nil {
		return 0, 0, err
	}
	if limit < 1 || limit > maxChanges {
		return 0, 0, fault.InvalidField("limit", "must be 1 to %d", maxChanges)
	}
	offset, err = q.number("offset", 0)
	return offset, limit, err
}

// diff tells how one point differs from another, or with a path, how that file
// does.
func (s *server) diff(r *request) (any, error) {
	q := query{r.URL.Query()}
	offset, limit, err := q.changePage()
	if err != nil {
		return nil, err
	}
	var points [2]sandbox.Point
	for i, name := range []string{"from", "to"} {
		if q.Get(name) == "" {
			return nil, fault.InvalidField(name, "is missing")
		}
		if points[i], err = sandbox.ParsePoint(q.Get(name)); err != nil {
			return nil, fault.InvalidField(name, "%s", fault.From(err).Message)
		}
	}
	if path := q.Get("path"); path != "" {
		text, err := r.ops.DiffFile(r.Context(), points[0], points[1], path)
		if err != nil {
			return nil, err
		}
		return FileDiff{Path: path, Diff: text}, nil
	}
	all, err := r.ops.Diff(r.Context(), points[0], points[1])
	if err != nil {
		return nil, err
	}
	return changeShapes(all, offset, limit), nil
}

func (s *server) snapshotFiles(r *request) (any, error) {
	offset, limit, err := query{r.URL.Query()}.changePage()
	if err != nil {
		return nil, err
	}
	all, err := r.ops.SnapshotFiles(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return changeShapes(all, offset, limit), nil
}
