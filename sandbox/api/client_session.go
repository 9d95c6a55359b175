package api

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Sessions lists the live sessions of a sandbox, the newest first, with all
// those that have ended as well. With an empty ref they are of all sandboxes the
// caller may see.
func (c *Client) Sessions(ctx context.Context, ref string, all bool) (SessionList, error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}
	if ref == "" {
		return fetch[SessionList](ctx, c, http.MethodGet, "/v1/sessions", q, nil, nil)
	}
	return one[SessionList](ctx, c, http.MethodGet, "/v1/sandboxes/%s/sessions", "sandbox", ref, q, nil)
}

// Session describes a session: a live one by its name, or any by its id.
func (c *Client) Session(ctx context.Context, ref, name string) (Session, error) {
	path, err := sessionPath(ref, name, "")
	if err != nil {
		return Session{}, err
	}
	return fetch[Session](ctx, c, http.MethodGet, path, nil, nil, nil)
}

// RenameSession gives a live session another name.
func (c *Client) RenameSession(ctx context.Context, ref, name, to string) (Session, error) {
	path, err := sessionPath(ref, name, "")
	if err != nil {
		return Session{}, err
	}
	return fetch[Session](ctx, c, http.MethodPatch, path, nil, SessionUpdate{Name: to}, nil)
}

// DetachSession detaches all clients of a session, which goes on.
func (c *Client) DetachSession(ctx context.Context, ref, name string) error {
	return c.postSession(ctx, ref, name, "/detach")
}

// KillSession ends a session.
func (c *Client) KillSession(ctx context.Context, ref, name string) error {
	return c.postSession(ctx, ref, name, "/kill")
}

func (c *Client) postSession(ctx context.Context, ref, name, what string) error {
	path, err := sessionPath(ref, name, what)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, nil, nil, nil, nil)
}

func sessionPath(ref, name, rest string) (string, error) {
	path, err := pathOf("/v1/sandboxes/%s/sessions/", "sandbox", ref)
	if err != nil {
		return "", err
	}
	if name == "" || name == "." || name == ".." {
		return "", fault.InvalidField("session", "%q is no session", name)
	}
	return path + url.PathEscape(name) + rest, nil
}

// Recordings lists recordings of a sandbox, the newest first. With an empty ref
// they are of all sandboxes the caller may see, those that have ended included.
func (c *Client) Recordings(ctx context.Context, ref string, limit, offset int) (RecordingList, error) {
	q := url.Values{}
	set(q, "sandboxId", ref)
	setPage(q, "", "", limit, offset)
	return fetch[RecordingList](ctx, c, http.MethodGet, "/v1/recordings", q, nil, nil)
}

// Recording describes a recording.
func (c *Client) Recording(ctx context.Context, id string) (Recording, error) {
	return one[Recording](ctx, c, http.MethodGet, "/v1/recordings/%s", "recording", id, nil, nil)
}

// ReadRecording copies a recording to w in a format ("asciicast-v2",
// "asciicast-v3", "text"; empty is the first); with follow it goes on until one
// that is being made has ended. An error of w comes back as it is.
func (c *Client) ReadRecording(ctx context.Context, id, format string, follow bool, w io.Writer) error {
	path, err := pathOf("/v1/recordings/%s/data", "recording", id)
	if err != nil {
		return err
	}
	q := url.Values{}
	set(q, "format", format)
	if follow {
		q.Set("follow", "true")
	}
	return c.receive(ctx, path, q, w)
}

// DeleteRecording removes a recording that is not being made.
func (c *Client) DeleteRecording(ctx context.Context, id string) error {
	path, err := pathOf("/v1/recordings/%s", "recording", id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}
