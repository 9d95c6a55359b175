package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxWait bounds how long one request may wait for a status or an end. The
// published client asks for five minutes at a time.
const maxWait = 5 * time.Minute

func (s *server) create(r *request) (any, error) {
	var body CreateRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	req, err := body.domain()
	if err != nil {
		return nil, err
	}
	req.Org = r.URL.Query().Get("orgId")
	if a, ok := r.w.(*answer); ok && strings.Contains(r.Header.Get("Accept"), contentNDJSON) {
		req.Progress = a.progress
	}
	// A command that does not end the sandbox is an execution like any other.
	var first []string
	if req.Mode != sandbox.Oneshot {
		first, req.Command = req.Command, nil
	}
	done, err := r.ops.Create(r.Context(), req)
	if err != nil {
		return nil, err
	}
	if len(first) > 0 {
		x, err := r.ops.Execute(r.Context(), done.Sandbox.ID, sandbox.ExecRequest{Command: first, Stdin: req.Stdin})
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
			defer cancel()
			if derr := r.ops.Delete(ctx, done.Sandbox.ID); derr != nil {
				err = errors.Join(err, fmt.Errorf("remove the sandbox again: %w", derr))
			}
			return nil, err
		}
		done.Execution = &x
	}
	out := Created{SandboxID: done.Sandbox.ID, Name: done.Sandbox.Name, Status: string(done.Sandbox.Status)}
	if x := done.Execution; x != nil {
		out.ExecutionID = x.ID
		out.StdinStreamURL, out.StdoutStreamURL, out.StderrStreamURL = s.streamURLs(r, x.ID, body.Stream)
	}
	return out, nil
}

// domain turns the body into the engine's request. It checks the forms of
// quantities and encodings; what the values mean is the engine's to judge.
func (b CreateRequest) domain() (sandbox.CreateRequest, error) {
	req := sandbox.CreateRequest{
		Name: b.Name, Description: b.Description, Runtime: b.Runtime, RuntimeID: b.RuntimeID, Snapshot: b.Snapshot,
		Project: b.ProjectID, Env: b.Env, Metadata: b.Metadata,
	}
	for field, list := range map[string][]string{"dependencies": b.Dependencies, "packages": b.Packages, "scopes": b.Scopes} {
		if len(list) > 0 {
			return req, &fault.Error{Code: fault.Unsupported, Field: field, Message: "this server does not have them; create the sandbox without"}
		}
	}
	files := b.Files
	if c := b.Command; c != nil {
		if len(c.Exec) == 0 {
			return req, fault.InvalidField("command.exec", "names no command to run")
		}
		req.Command, req.Mode, req.Attended = c.Exec, sandbox.Mode(c.Mode), c.Attended
		files = slices.Concat(c.Files, b.Files)
	}
	if n := b.Network; n != nil {
		req.Network, req.Port, req.Allow = n.Enabled, n.Port, n.Allow
	}
	var err error
	if req.Stdin, err = b.Stream.stdin(); err != nil {
		return req, err
	}
	if req.Files, err = decodeFiles(files); err != nil {
		return req, err
	}
	if err := b.Timeout.over(&req.Timeouts); err != nil {
		return req, err
	}
	req.Limits, err = b.Resources.domain()
	return req, err
}

// parse reads an optional quantity and names the field in the error.
func parse[T any](field, value string, read func(string) (T, error), to *T) error {
	if value == "" {
		return nil
	}
	v, err := read(value)
	if err != nil {
		return fault.InvalidField(field, "%v", err)
	}
	*to = v
	return nil
}

func (s *server) list(r *request) (any, error) {
	q := query{r.URL.Query()}
	req := sandbox.ListRequest{
		Name: q.Get("name"), Mode: sandbox.Mode(q.Get("mode")), Project: q.Get("projectId"), SortBy: q.Get("sort"),
	}
	for _, status := range q.list("status") {
		req.Status = append(req.Status, sandbox.Status(status))
	}
	live, given, err := q.boolean("live")
	if err != nil {
		return nil, err
	}
	deleted, _, err := q.boolean("deletedOnly")
	if err != nil {
		return nil, err
	}
	switch {
	case deleted:
		req.Status = []sandbox.Status{sandbox.Deleted}
	case given && live:
		req.LiveOnly = true
	case given && len(req.Status) == 0:
		req.Status = []sandbox.Status{sandbox.Terminated, sandbox.Failed}
	}
	if req.Limit, err = q.number("limit", 50); err != nil {
		return nil, err
	}
	if req.Limit == 0 {
		return nil, fault.InvalidField("limit", "must be 1 to 100")
	}
	if req.Offset, err = q.number("offset", 0); err != nil {
		return nil, err
	}
	if req.Asc, err = q.ascending(false); err != nil {
		return nil, err
	}
	out := SandboxList{Sandboxes: []Sandbox{}}
	var found []sandbox.Sandbox
	if id := q.Get("snapshotId"); id != "" {
		found, out.Total, err = madeFrom(r, id, req)
	} else {
		found, out.Total, err = r.ops.List(r.Context(), req)
	}
	if err != nil {
		return nil, err
	}
	known := map[string]*SnapshotRef{}
	for _, sb := range found {
		out.Sandboxes = append(out.Sandboxes, s.sandboxAnswer(r, sb, known))
	}
	return out, nil
}

// madeFrom lists the live sandboxes made from a snapshot, newest first. Of the
// filters those of name, status and mode apply.
func madeFrom(r *request, snapshot string, req sandbox.ListRequest) ([]sandbox.Sandbox, int, error) {
	all, err := r.ops.SandboxesOf(r.Context(), snapshot)
	if fault.Is(err, fault.NotFound) { // a filter that nothing matches
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	all = slices.DeleteFunc(all, func(sb sandbox.Sandbox) bool {
		return req.Name != "" && sb.Name != req.Name || req.Mode != "" && sb.Mode != req.Mode ||
			len(req.Status) > 0 && !slices.Contains(req.Status, sb.Status)
	})
	total := len(all)
	all = all[min(req.Offset, total):]
	return all[:min(req.Limit, len(all))], total, nil
}

func (s *server) get(r *request) (any, error) {
	q := query{r.URL.Query()}
	deleted, _, err := q.boolean("includeDeleted")
	if err != nil {
		return nil, err
	}
	sb, err := s.lookup(r, q)
	if err != nil {
		return nil, err
	}
	if sb.Status == sandbox.Deleted && !deleted {
		return nil, fault.New(fault.NotFound, "sandbox %s was deleted", sb.ID).About("sandbox")
	}
	out := s.sandboxAnswer(r, sb, nil)
	if out.TerminatesAt, out.TerminatesWhy, err = r.ops.Countdown(r.Context(), sb.ID); err != nil {
		return nil, err
	}
	out.TerminatesAt = out.TerminatesAt.UTC()
	if usage, _, err := q.boolean("usage"); err != nil {
		return nil, err
	} else if usage {
		// What an engine cannot tell is left out.
		if u, err := r.ops.Usage(r.Context(), sb.ID); err == nil {
			shape := usageShape(u)
			out.Usage, out.CPUTimeMs, out.MemoryByteSec, out.NetworkEgress = &shape, &shape.CPUTimeMs, &shape.MemoryByteSec, &shape.NetworkEgress
		}
	}
	if sb.Mode == sandbox.Oneshot && sb.Executions > 0 {
		xs, err := r.ops.Executions(r.Context(), sb.ID, 1)
		if err != nil {
			return nil, err
		}
		if len(xs) > 0 {
			_, out.StdoutStreamURL, out.StderrStreamURL = s.streamURLs(r, xs[0].ID, nil)
		}
	}
	return out, nil
}

func (s *server) status(r *request) (any, error) {
	sb, err := s.lookup(r, query{r.URL.Query()})
	if err != nil {
		return nil, err
	}
	out := SandboxStatus{SandboxID: sb.ID, Status: string(sb.Status)}
	if !sb.Status.Live() {
		out.ExitCode = sb.ExitCode
	}
	return out, nil
}

// lookup finds the sandbox of the path, after waiting for a status if the
// query asks for that.
func (s *server) lookup(r *request, q query) (sandbox.Sandbox, error) {
	var want []sandbox.Status
	for _, status := range q.list("waitForStatus") {
		if _, ok := sandbox.Transitions[sandbox.Status(status)]; !ok {
			return sandbox.Sandbox{}, fault.InvalidField("waitForStatus", "%q is not a status", clip(status))
		}
		want = append(want, sandbox.Status(status))
	}
	ms, err := q.number("waitMs", int(maxWait.Milliseconds()))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if len(want) == 0 {
		return r.ops.Get(r.Context(), r.PathValue("id"))
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(ms)*time.Millisecond, maxWait))
	defer cancel()
	return r.ops.WaitStatus(ctx, r.PathValue("id"), want...)
}

func (s *server) destroy(r *request) (any, error) {
	return nil, r.ops.Delete(r.Context(), r.PathValue("id"))
}

func (s *server) runtimes(r *request) (any, error) {
	q := query{r.URL.Query()}
	limit, err := q.number("limit", 50)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > 100 {
		return nil, fault.InvalidField("limit", "must be 1 to 100")
	}
	offset, err := q.number("offset", 0)
	if err != nil {
		return nil, err
	}
	asc, err := q.ascending(false)
	if err != nil {
		return nil, err
	}
	all, err := r.ops.Runtimes(r.Context())
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	switch sort := q.Get("sort"); sort {
	case "", "created": // the catalog's own order, which has no dates
	case "name":
		slices.SortStableFunc(all, func(a, b sandbox.Runtime) int { return -strings.Compare(a.Name, b.Name) })
	default:
		return nil, fault.InvalidField("sort", "%q is not a field to sort by: use name or created", clip(sort))
	}
	if asc {
		slices.Reverse(all)
	}
	out := RuntimeList{Runtimes: []Runtime{}, Total: len(all)}
	for _, rt := range all[min(offset, len(all)):min(offset+limit, len(all))] {
		out.Runtimes = append(out.Runtimes, runtimeShape(rt))
	}
	return out, nil
}

func (s *server) info(r *request) (any, error) {
	out := s.cfg.Info()
	if out.Version == "" {
		out.Version = s.cfg.Version
	}
	if out.HostKeys == nil {
		out.HostKeys = []string{}
	}
	who := r.ops.Principal()
	out.Principal = Who{ID: who.ID, Role: string(who.Role)}
	return out, nil
}
