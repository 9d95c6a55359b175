package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandgate/sandgate/sandbox"
)

// CreateJob starts a command in the background.
func (c *Client) CreateJob(ctx context.Context, ref string, r JobRequest) (Job, error) {
	return one[Job](ctx, c, http.MethodPost, "/sandbox/sandboxes/%s/jobs", "sandbox", ref, nil, r)
}

// Jobs lists jobs of a sandbox, the newest first.
func (c *Client) Jobs(ctx context.Context, ref string, limit, offset int) (JobList, error) {
	q := url.Values{}
	setPage(q, "", "", limit, offset)
	return one[JobList](ctx, c, http.MethodGet, "/sandbox/sandboxes/%s/jobs", "sandbox", ref, q, nil)
}

// Job returns a job as it is now.
func (c *Client) Job(ctx context.Context, ref, id string) (Job, error) {
	return c.job(ctx, http.MethodGet, ref, id, nil)
}

// WaitJob returns a job when it has ended.
func (c *Client) WaitJob(ctx context.Context, ref, id string) (Job, error) {
	for {
		j, err := c.job(ctx, http.MethodGet, ref, id, url.Values{"wait": {sandbox.FormatDuration(maxWait)}})
		if err != nil || j.Done() {
			return j, err
		}
	}
}

// StopJob ends a job, with force at once, and returns it when it has ended.
func (c *Client) StopJob(ctx context.Context, ref, id string, force bool) (Job, error) {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	return c.job(ctx, http.MethodDelete, ref, id, q)
}

func (c *Client) job(ctx context.Context, method, ref, id string, q url.Values) (Job, error) {
	path, err := pathOf("/sandbox/sandboxes/%s/jobs/", "sandbox", ref)
	if err != nil {
		return Job{}, err
	}
	rest, err := pathOf("%s", "job", id)
	if err != nil {
		return Job{}, err
	}
	return fetch[Job](ctx, c, method, path+rest, q, nil, nil)
}
