package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Execute starts a command. Busy when another is under way.
func (c *Client) Execute(ctx context.Context, ref string, r ExecuteRequest) (Execution, error) {
	path, err := pathOf("/sandbox/%s/execute", "sandbox", ref)
	if err != nil {
		return Execution{}, err
	}
	return fetch[Execution](ctx, c, http.MethodPost, path, nil, r, nil)
}

// Execution returns an execution as it is now.
func (c *Client) Execution(ctx context.Context, id string) (Execution, error) {
	return c.executionAfter(ctx, id, "")
}

// WaitExecution returns an execution when it has ended.
func (c *Client) WaitExecution(ctx context.Context, id string) (Execution, error) {
	for {
		x, err := c.executionAfter(ctx, id, sandbox.FormatDuration(maxWait))
		if err != nil || x.Done() {
			return x, err
		}
	}
}

func (c *Client) executionAfter(ctx context.Context, id, wait string) (Execution, error) {
	q := url.Values{}
	set(q, "wait", wait)
	path, err := pathOf("/sandbox/execution/%s", "execution", id)
	if err != nil {
		return Execution{}, err
	}
	return fetch[Execution](ctx, c, http.MethodGet, path, q, nil, nil)
}

// Executions lists executions of a sandbox, the newest first.
func (c *Client) Executions(ctx context.Context, ref string, limit int) (ExecutionList, error) {
	q := url.Values{}
	setPage(q, "", "", limit, 0)
	path, err := pathOf("/sandbox/sandboxes/%s/executions", "sandbox", ref)
	if err != nil {
		return ExecutionList{}, err
	}
	return fetch[ExecutionList](ctx, c, http.MethodGet, path, q, nil, nil)
}

// Cancel ends an execution.
func (c *Client) Cancel(ctx context.Context, id string) error {
	path, err := pathOf("/v1/executions/%s", "execution", id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

// ReadStream copies the stream at one of the stream URLs of an answer to w,
// until the execution has ended. An error of w comes back as it is.
func (c *Client) ReadStream(ctx context.Context, streamURL string, w io.Writer) error {
	return c.readStream(ctx, streamURL, w)
}

// StreamOptions say how the output behind a stream URL is read. The zero value
// reads it from its beginning until the command has ended.
type StreamOptions struct {
	NoFollow   bool // only what there is
	Timestamps bool // begin each line with the time of its first byte, RFC 3339 with nanoseconds, and a space
	Tail       int  // only the last lines of what there is; 0 is all
}

// ReadStreamWith is ReadStream with options.
func (c *Client) ReadStreamWith(ctx context.Context, streamURL string, o StreamOptions, w io.Writer) error {
	u, err := url.Parse(streamURL)
	if err != nil {
		return fault.New(fault.Invalid, "%q is not a stream URL", clip(streamURL))
	}
	q := u.Query()
	if o.NoFollow {
		q.Set("follow", "false")
	}
	if o.Timestamps {
		q.Set("timestamps", "true")
	}
	if o.Tail != 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	u.RawQuery = q.Encode()
	return c.readStream(ctx, u.String(), w)
}

func (c *Client) readStream(ctx context.Context, streamURL string, w io.Writer) error {
	req, err := c.streamRequest(ctx, http.MethodGet, streamURL, nil)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.streamFailure(ctx, resp)
	}
	out := &sink{w: w}
	if _, err := io.Copy(out, resp.Body); err != nil {
		if out.err != nil {
			return out.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fault.Wrap(err, fault.Unavailable, "the connection to %s was lost while output came; what was shown is not all", c.host)
	}
	return nil
}

// sink remembers whose error it was.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.err = err
	return n, err
}

// WriteStream copies r to the stdin behind the StdinStreamURL of an answer and
// closes it when r ends. When ctx ends first it returns at once, although a
// Read of r may still be waiting.
func (c *Client) WriteStream(ctx context.Context, streamURL string, r io.Reader) error {
	// Transports wait for the body's Read even after they have given up; a
	// pipe can be closed under them.
	body, feed := io.Pipe()
	defer body.Close()
	defer context.AfterFunc(ctx, func() { _ = body.CloseWithError(ctx.Err()) })()
	go func() {
		_, err := io.Copy(feed, r)
		_ = feed.CloseWithError(err)
	}()
	req, err := c.streamRequest(ctx, http.MethodPost, streamURL, body)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.streamFailure(ctx, resp)
	}
	return nil
}

// streamRequest makes a request to the path of a stream URL. Its host is left
// out: the client goes where it was told to, whatever an answer says.
func (c *Client) streamRequest(ctx context.Context, method, streamURL string, body io.Reader) (*http.Request, error) {
	u, err := url.Parse(streamURL)
	if err != nil || u.Path == "" || u.Path[0] != '/' {
		return nil, fault.New(fault.Invalid, "%q is not a stream URL", clip(streamURL))
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+u.RequestURI(), body)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%q is not a stream URL", clip(streamURL))
	}
	return req, nil
}

func (c *Client) streamFailure(ctx context.Context, resp *http.Response) error {
	env, err := readEnvelope(resp, nil)
	if err != nil {
		return c.broken(ctx, err)
	}
	if env.Success {
		return c.broken(ctx, errors.New("it sent no stream"))
	}
	return fromWire(resp.StatusCode, env)
}
