package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxAnswer bounds an answer that is not a byte stream.
const maxAnswer = 64 << 20

// Client speaks the API. Its methods are safe for concurrent use and return
// *fault.Error values, or the error of their context.
type Client struct {
	http    *http.Client
	base    string // without a slash at the end
	key     string
	host    string             // as the user wrote it, for messages
	explain func(error) string // says why the transport failed; may be nil
	close   func()
}

// NewClient makes a client of a transport that reaches one server, such as
// [InProcess].
func NewClient(transport http.RoundTripper) *Client {
	return &Client{
		http: &http.Client{
			Transport: transport,
			// A server of this API never redirects; what redirects is not one,
			// and gets no key.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base: "http://sandgate",
		host: "this server",
	}
}

// Host is what the client was dialed with.
func (c *Client) Host() string { return c.host }

// Close ends the client's connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	if c.close != nil {
		c.close()
	}
	return nil
}

// reserved are the words that stand where an id of a sandbox stands in paths.
var reserved = []string{".", "..", "status", "execution", "sandboxes", "runtimes", "snapshots", "checkpoints", "env"}

// ReservedName reports whether a sandbox of that name could not be reached
// through the API, because its paths have the word at the place of an id.
func ReservedName(name string) bool { return slices.Contains(reserved, name) }

// pathOf makes a path of its parts, and refuses parts that cannot be an id.
func pathOf(format, kind, id string) (string, error) {
	if id == "" {
		return "", fault.InvalidField(kind, "is empty")
	}
	if ReservedName(id) {
		return "", fault.New(fault.NotFound, "no %s %q", kind, id).About(kind)
	}
	return fmt.Sprintf(format, url.PathEscape(id)), nil
}

// call sends a request and decodes the data of the answer into out, both
// optional. progress, when not nil, asks for progress lines and gets them.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, in, out any, progress func(string)) error {
	var body io.Reader
	if in != nil {
		raw, err := marshal(in)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "the request cannot be written as JSON: %v", err)
		}
		body = bytes.NewReader(raw)
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the request cannot be made: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if progress != nil {
		req.Header.Set("Accept", contentNDJSON+", application/json")
	}
	return c.do(req, out, progress)
}

// do sends a request and decodes the data of the answer.
func (c *Client) do(req *http.Request, out any, progress func(string)) error {
	ctx := req.Context()
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	env, err := readEnvelope(resp, progress)
	if err != nil {
		return c.broken(ctx, err)
	}
	if !env.Success {
		return fromWire(resp.StatusCode, env)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(env.Data, out); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the answer of %s is not what this version understands; are client and server of the same version?", c.host)
	}
	return nil
}

// fetch is call for requests that are answered with a T.
func fetch[T any](ctx context.Context, c *Client, method, path string, q url.Values, in any, progress func(string)) (T, error) {
	var out T
	err := c.call(ctx, method, path, q, in, &out, progress)
	return out, err
}

// send sends a request with the client's key.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("User-Agent", "sandgate")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(req.Context(), err)
	}
	return resp, nil
}

// broken explains a failure of the transport.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	why := err.Error()
	if c.explain != nil {
		why = c.explain(err)
	}
	return fault.Wrap(err, fault.Unavailable, "%s does not answer: %s", c.host, why)
}

// readEnvelope reads the answer: the last line of it, the others are progress.
func readEnvelope(resp *http.Response, progress func(string)) (envelope, error) {
	lines := bufio.NewReader(io.LimitReader(resp.Body, maxAnswer))
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("it ended the answer early (HTTP %d)", resp.StatusCode)
			}
			return envelope{}, err
		}
		var env envelope
		if jerr := json.Unmarshal(line, &env); jerr != nil {
			if err != nil && !errors.Is(err, io.EOF) {
				return envelope{}, err
			}
			return envelope{}, fmt.Errorf("it is no sandgate server (HTTP %d, %s)", resp.StatusCode, strings.TrimSpace(resp.Header.Get("Content-Type")))
		}
		if env.Progress == "" {
			return env, nil
		}
		if progress != nil {
			progress(env.Progress)
		}
	}
}
