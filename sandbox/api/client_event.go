package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Events lists events of a sandbox, at most 100, the oldest first unless
// newestFirst. With an empty ref they are of all sandboxes the caller may see.
func (c *Client) Events(ctx context.Context, ref string, limit int, newestFirst bool) (EventList, error) {
	q := url.Values{}
	direction := "asc"
	if newestFirst {
		direction = "desc"
	}
	setPage(q, "", direction, limit, 0)
	if ref == "" {
		return fetch[EventList](ctx, c, http.MethodGet, "/v1/events", q, nil, nil)
	}
	return one[EventList](ctx, c, http.MethodGet, "/sandbox/sandboxes/%s/events", "sandbox", ref, q, nil)
}

// maxEvent bounds one line of followed events.
const maxEvent = 1 << 20

// FollowEvents calls each for every event of a sandbox, or of all the caller may
// see when ref is empty, as it happens: those after a number (Seq of one
// sandbox, Position of all), or from now on when after is negative. It returns
// the error of each or of ctx, or Unavailable when the connection ends.
func (c *Client) FollowEvents(ctx context.Context, ref string, after int64, each func(Event) error) error {
	path := "/v1/events/follow"
	if ref != "" {
		var err error
		if path, err = pathOf("/v1/sandboxes/%s/events/follow", "sandbox", ref); err != nil {
			return err
		}
	}
	if after >= 0 {
		path += "?after=" + strconv.FormatInt(after, 10)
	}
	resp, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fault.Wrap(err, fault.Unavailable, "%s sent an event that this version does not understand", c.host)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.lost(lines.Err())
}

// lost explains a stream that ended too early.
func (c *Client) lost(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fault.Wrap(err, fault.Unavailable, "the connection to %s was lost", c.host)
}

// open sends a request whose answer is a stream of bytes.
func (c *Client) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the request cannot be made: %v", err)
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	env, err := readEnvelope(resp, nil)
	switch {
	case err != nil:
		return nil, c.broken(ctx, err)
	case env.Success:
		return nil, c.broken(ctx, errors.New("it sent no stream"))
	}
	return nil, fromWire(resp.StatusCode, env)
}
