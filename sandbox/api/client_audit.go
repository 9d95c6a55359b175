package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Audit calls each for every record of the audit log that is asked for, the
// oldest first, and with Follow for those that are written from now on. It is
// for admins.
func (c *Client) Audit(ctx context.Context, ask sandbox.AuditQuery, each func(sandbox.AuditRecord) error) error {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("principal", ask.Principal)
	set("sandbox", ask.Sandbox)
	for _, kind := range ask.Kinds {
		q.Add("kind", string(kind))
	}
	if !ask.Since.IsZero() {
		q.Set("since", ask.Since.Format(time.RFC3339Nano))
	}
	if ask.Limit > 0 {
		q.Set("limit", strconv.Itoa(ask.Limit))
	}
	if ask.Follow {
		q.Set("follow", "true")
	}
	resp, err := c.open(ctx, http.MethodGet, "/v1/audit?"+q.Encode(), nil)
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
		var r sandbox.AuditRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fault.Wrap(err, fault.Unavailable, "%s sent a record that this version does not understand", c.host)
		}
		if err := each(r); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case lines.Err() != nil || ask.Follow:
		return c.lost(lines.Err())
	}
	return nil
}

// Reload has the server read its files anew. What could not be read says so
// and stays as it was. It is for admins.
func (c *Client) Reload(ctx context.Context) (sandbox.Reload, error) {
	return fetch[sandbox.Reload](ctx, c, http.MethodPost, "/v1/server/reload", nil, nil, nil)
}
