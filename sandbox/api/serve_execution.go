package api

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) execute(r *request) (any, error) {
	var body ExecuteRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	req := sandbox.ExecRequest{Command: body.Command}
	var err error
	if req.Stdin, err = body.Stream.stdin(); err != nil {
		return nil, err
	}
	if req.Files, err = decodeFiles(body.Files); err != nil {
		return nil, err
	}
	if err := parse("timeout", body.Timeout, sandbox.ParseDuration, &req.Timeout); err != nil {
		return nil, err
	}
	x, err := r.ops.Execute(r.Context(), r.PathValue("id"), req)
	if fault.Is(err, fault.State) {
		if sb, gerr := r.ops.Get(r.Context(), r.PathValue("id")); gerr == nil && !sb.Status.Live() {
			err = terminated{err}
		}
	}
	if err != nil {
		return nil, err
	}
	return s.executionAnswer(r, x, body.Stream), nil
}

// executionAnswer is an execution with the URLs of its streams.
func (s *server) executionAnswer(r *request, x sandbox.Execution, cfg *StreamConfig) Execution {
	out := executionShape(x)
	out.StdinStreamURL, out.StdoutStreamURL, out.StderrStreamURL = s.streamURLs(r, x.ID, cfg)
	return out
}

// streamURLs are the URLs of the streams that a request did not ask to ignore.
func (s *server) streamURLs(r *request, execution string, cfg *StreamConfig) (stdin, stdout, stderr string) {
	if cfg == nil {
		cfg = &StreamConfig{}
	}
	if cfg.Stdin == StreamPipe {
		stdin = s.streamURL(r, execution, "stdin")
	}
	if cfg.Stdout != StreamIgnore {
		stdout = s.streamURL(r, execution, string(sandbox.Stdout))
	}
	if cfg.Stderr != StreamIgnore {
		stderr = s.streamURL(r, execution, string(sandbox.Stderr))
	}
	return stdin, stdout, stderr
}

// stdin checks the stream configuration and reports whether stdin stays open.
func (c *StreamConfig) stdin() (bool, error) {
	if c == nil {
		return false, nil
	}
	for field, v := range map[string]string{"stream.stdout": c.Stdout, "stream.stderr": c.Stderr} {
		if v != "" && v != StreamIgnore {
			return false, &fault.Error{Code: fault.Unsupported, Field: field, Message: "output cannot be sent to a stream of its own; leave this out, or write \"ignore\""}
		}
	}
	if c.Timestamps {
		return false, &fault.Error{Code: fault.Unsupported, Field: "stream.timestamps", Message: "this server does not write times into output; leave this out"}
	}
	switch c.Stdin {
	case "", StreamIgnore:
		return false, nil
	case StreamPipe:
		return true, nil
	}
	return false, &fault.Error{Code: fault.Unsupported, Field: "stream.stdin", Message: "input cannot come from a stream of its own; write \"pipe\" and send it to stdinStreamUrl"}
}

// decodeFiles reads the contents and modes of files.
func decodeFiles(files []File) ([]sandbox.File, error) {
	out := make([]sandbox.File, 0, len(files))
	for i, f := range files {
		field := fmt.Sprintf("files[%d]", i)
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			return nil, fault.InvalidField(field+".content", "the content of %q is not base64", clip(f.Path))
		}
		var mode uint64
		if f.Mode != "" {
			if mode, err = strconv.ParseUint(f.Mode, 8, 12); err != nil {
				return nil, fault.InvalidField(field+".mode", "%q is not a mode in octal, such as 0644", clip(f.Mode))
			}
		}
		out = append(out, sandbox.File{Path: f.Path, Content: content, Mode: uint32(mode)})
	}
	return out, nil
}

func (s *server) execution(r *request) (any, error) {
	var wait time.Duration
	if err := parse("wait", r.URL.Query().Get("wait"), sandbox.ParseDuration, &wait); err != nil {
		return nil, err
	}
	x, err := r.ops.Execution(r.Context(), r.PathValue("id"), min(wait, maxWait))
	if err != nil {
		return nil, err
	}
	return s.executionAnswer(r, x, nil), nil
}

func (s *server) executions(r *request) (any, error) {
	limit, err := query{r.URL.Query()}.number("limit", 50)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > 1000 {
		return nil, fault.InvalidField("limit", "must be 1 to 1000")
	}
	xs, err := r.ops.Executions(r.Context(), r.PathValue("id"), limit)
	if err != nil {
		return nil, err
	}
	out := ExecutionList{Executions: []Execution{}}
	for _, x := range xs {
		out.Executions = append(out.Executions, s.executionAnswer(r, x, nil))
	}
	return out, nil
}

func (s *server) cancel(r *request) (any, error) {
	return nil, r.ops.Cancel(r.Context(), r.PathValue("id"))
}

// eventPage is how many events are asked of the engine at once.
const eventPage = 1000

func (s *server) events(r *request) (any, error) {
	q := query{r.URL.Query()}
	limit, err := q.number("limit", 50)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > 100 {
		return nil, fault.InvalidField("limit", "must be 1 to 100")
	}
	asc, err := q.ascending(true)
	if err != nil {
		return nil, err
	}
	after, err := q.number("after", 0)
	if err != nil {
		return nil, err
	}
	var found []sandbox.Event
	if asc {
		found, err = r.ops.Events(r.Context(), r.PathValue("id"), int64(after), limit)
	} else {
		found, err = lastEvents(r, int64(after), limit)
	}
	if err != nil {
		return nil, err
	}
	out := EventList{Events: []Event{}}
	for _, e := range found {
		out.Events = append(out.Events, eventShape(e))
	}
	return out, nil
}

// lastEvents returns the newest events of a sandbox, the newest first. The
// engine counts from the oldest, so it goes through them a page at a time.
func lastEvents(r *request, after int64, limit int) ([]sandbox.Event, error) {
	var last []sandbox.Event
	for {
		page, err := r.ops.Events(r.Context(), r.PathValue("id"), after, eventPage)
		if err != nil {
			return nil, err
		}
		last = append(last, page...)
		last = slices.Clone(last[max(0, len(last)-limit):])
		if len(page) < eventPage {
			slices.Reverse(last)
			return last, nil
		}
		after = page[len(page)-1].Seq
	}
}
