package api

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Pause stops a sandbox so that it costs neither memory nor CPU; see Resume.
func (c *Client) Pause(ctx context.Context, ref string) (Sandbox, error) {
	return one[Sandbox](ctx, c, http.MethodPost, "/sandbox/%s/pause", "sandbox", ref, nil, nil)
}

// Resume brings a paused sandbox up again. One that is up is left alone.
func (c *Client) Resume(ctx context.Context, ref string) (Sandbox, error) {
	return one[Sandbox](ctx, c, http.MethodPost, "/sandbox/%s/resume", "sandbox", ref, nil, nil)
}

// SetEnv changes the variables that commands get from now on, nil deletes one,
// and returns all of them.
func (c *Client) SetEnv(ctx context.Context, ref string, env map[string]*string) (map[string]string, error) {
	if env == nil {
		env = map[string]*string{}
	}
	out, err := one[Env](ctx, c, http.MethodPatch, "/sandbox/env/%s", "sandbox", ref, nil, EnvRequest{Env: env})
	return out.Env, err
}

// Update changes what can change while a sandbox lives.
func (c *Client) Update(ctx context.Context, ref string, r UpdateRequest) (Sandbox, error) {
	return one[Sandbox](ctx, c, http.MethodPatch, "/v1/sandboxes/%s", "sandbox", ref, nil, r)
}

// Fork makes a second sandbox with the files of the first, which runs on.
func (c *Client) Fork(ctx context.Context, ref string, r ForkRequest) (Sandbox, error) {
	return one[Sandbox](ctx, c, http.MethodPost, "/v1/sandboxes/%s/fork", "sandbox", ref, nil, r)
}

// Usage is what a sandbox uses now, and has used since it was made.
func (c *Client) Usage(ctx context.Context, ref string) (Usage, error) {
	return one[Usage](ctx, c, http.MethodGet, "/v1/sandboxes/%s/usage", "sandbox", ref, nil, nil)
}

// Stats sums up what the caller may see, from start, or the beginning of the
// records, to end, or now. org restricts it unless it is empty.
func (c *Client) Stats(ctx context.Context, org string, start, end time.Time) (Stats, error) {
	q := url.Values{}
	set(q, "orgId", org)
	for name, t := range map[string]time.Time{"start": start, "end": end} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return fetch[Stats](ctx, c, http.MethodGet, "/v1/stats", q, nil, nil)
}

// one is fetch for a path with an id in it.
func one[T any](ctx context.Context, c *Client, method, format, kind, id string, q url.Values, in any) (T, error) {
	path, err := pathOf(format, kind, id)
	if err != nil {
		var none T
		return none, err
	}
	return fetch[T](ctx, c, method, path, q, in, nil)
}
