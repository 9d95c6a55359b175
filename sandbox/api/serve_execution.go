package api

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) execute(r *request) (any, error) {
	var body ExecuteRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	req := sandbox.ExecRequest{Command: body.Command, Queue: body.Queue}
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
	return beside{data: s.executionAnswer(r, x, body.Stream), also: struct {
		AutoResumed bool `json:"autoResumed,omitempty"`
	}{x.AutoResumed}}, nil
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
	stamp := ""
	if cfg.Timestamps {
		stamp = "&timestamps=true"
	}
	if cfg.Stdout != StreamIgnore {
		stdout = s.streamURL(r, execution, string(sandbox.Stdout)) + stamp
	}
	if cfg.Stderr != StreamIgnore {
		stderr = s.streamURL(r, execution, string(sandbox.Stderr)) + stamp
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
		mode, err := octal(field+".mode", f.Mode)
		if err != nil {
			return nil, err
		}
		out = append(out, sandbox.File{Path: f.Path, Content: content, Mode: mode})
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
