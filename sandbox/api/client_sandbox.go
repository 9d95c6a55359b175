package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Create makes a sandbox. org may be empty; progress may be nil, and is told
// otherwise what takes long, a line at a time.
func (c *Client) Create(ctx context.Context, r CreateRequest, org string, progress func(line string)) (Created, error) {
	q := url.Values{}
	set(q, "orgId", org)
	return fetch[Created](ctx, c, http.MethodPost, "/sandbox", q, r, progress)
}

// GetOptions refine Get. The zero value asks for the sandbox as it is now.
type GetOptions struct {
	IncludeDeleted bool
	WaitFor        []string      // statuses; return as soon as it has one of them
	Wait           time.Duration // at most five minutes; zero is that
	Usage          bool          // with what it uses, where the engine can tell
}

// Get describes a sandbox.
func (c *Client) Get(ctx context.Context, ref string, o GetOptions) (Sandbox, error) {
	q := url.Values{}
	if o.IncludeDeleted {
		q.Set("includeDeleted", "true")
	}
	if o.Usage {
		q.Set("usage", "true")
	}
	setWait(q, o.WaitFor, o.Wait)
	path, err := pathOf("/sandbox/%s", "sandbox", ref)
	if err != nil {
		return Sandbox{}, err
	}
	return fetch[Sandbox](ctx, c, http.MethodGet, path, q, nil, nil)
}

// Status returns the status of a sandbox, after at most wait when it has none
// of the statuses waitFor yet. Without waitFor it returns at once.
func (c *Client) Status(ctx context.Context, ref string, waitFor []string, wait time.Duration) (SandboxStatus, error) {
	q := url.Values{}
	setWait(q, waitFor, wait)
	path, err := pathOf("/sandbox/status/%s", "sandbox", ref)
	if err != nil {
		return SandboxStatus{}, err
	}
	return fetch[SandboxStatus](ctx, c, http.MethodGet, path, q, nil, nil)
}

// ListRequest selects sandboxes; empty fields do not restrict. Without
// Statuses it lists what is live and what has failed.
type ListRequest struct {
	Name      string
	Mode      string
	ProjectID string
	Statuses  []string
	Snapshot  string // live ones made from it, an id or a tag
	Sort      string // default "created"
	Direction string // "asc" or "desc", the default
	Limit     int    // default 50, at most 100
	Offset    int
}

// List lists sandboxes.
func (c *Client) List(ctx context.Context, r ListRequest) (SandboxList, error) {
	q := url.Values{}
	set(q, "name", r.Name)
	set(q, "mode", r.Mode)
	set(q, "projectId", r.ProjectID)
	set(q, "status", strings.Join(r.Statuses, ","))
	set(q, "snapshotId", r.Snapshot)
	setPage(q, r.Sort, r.Direction, r.Limit, r.Offset)
	return fetch[SandboxList](ctx, c, http.MethodGet, "/sandbox", q, nil, nil)
}

// Delete destroys a sandbox. Deleting one that has ended does nothing.
func (c *Client) Delete(ctx context.Context, ref string) error {
	path, err := pathOf("/sandbox/%s", "sandbox", ref)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

// Runtimes lists the runtimes of the server, sorted by "name" or, by default,
// in the order of its catalog.
func (c *Client) Runtimes(ctx context.Context, sort, direction string, limit, offset int) (RuntimeList, error) {
	q := url.Values{}
	setPage(q, sort, direction, limit, offset)
	return fetch[RuntimeList](ctx, c, http.MethodGet, "/sandbox/runtimes", q, nil, nil)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setPage(q url.Values, sort, direction string, limit, offset int) {
	set(q, "sort", sort)
	set(q, "direction", direction)
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if offset != 0 {
		q.Set("offset", strconv.Itoa(offset))
	}
}

func setWait(q url.Values, statuses []string, wait time.Duration) {
	set(q, "waitForStatus", strings.Join(statuses, ","))
	if wait > 0 {
		q.Set("waitMs", strconv.FormatInt(max(1, wait.Milliseconds()), 10))
	}
}
