package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// CreateSnapshot keeps the files of a sandbox as a snapshot.
func (c *Client) CreateSnapshot(ctx context.Context, ref string, r SnapshotRequest, org string) (Snapshot, error) {
	q := url.Values{}
	set(q, "orgId", org)
	return one[Snapshot](ctx, c, http.MethodPost, "/sandbox/%s/snapshot", "sandbox", ref, q, r)
}

// SnapshotListRequest selects snapshots; empty fields do not restrict.
type SnapshotListRequest struct {
	Sandbox   string // taken from it
	Tag       string
	Public    bool // everybody's public ones, instead of one's own
	Sort      string
	Direction string
	Limit     int // default 50, at most 100
	Offset    int
}

// Snapshots lists snapshots.
func (c *Client) Snapshots(ctx context.Context, r SnapshotListRequest) (SnapshotList, error) {
	q := url.Values{}
	set(q, "sandboxId", r.Sandbox)
	set(q, "tag", r.Tag)
	setPage(q, r.Sort, r.Direction, r.Limit, r.Offset)
	path := "/sandbox/snapshots"
	if r.Public {
		path += "/public"
	}
	return fetch[SnapshotList](ctx, c, http.MethodGet, path, q, nil, nil)
}

// snapshotWords are the words that stand where a snapshot stands in paths.
var snapshotWords = []string{".", "..", "lineage", "public", "build"}

// snapshotPath makes a path of the id or the tag of a snapshot.
func snapshotPath(prefix, ref string) (string, error) {
	switch {
	case ref == "":
		return "", fault.InvalidField("snapshot", "is empty")
	case slices.Contains(snapshotWords, ref):
		return "", fault.InvalidField("snapshot", "%q cannot be used here; give the id of the snapshot, `snapshot list --tag %s` shows it", ref, ref)
	}
	return prefix + url.PathEscape(ref), nil
}

// onSnapshot is fetch for a snapshot given by its id or its tag.
func onSnapshot[T any](ctx context.Context, c *Client, method, prefix, ref, suffix string, q url.Values, in any) (T, error) {
	path, err := snapshotPath(prefix, ref)
	if err != nil {
		var none T
		return none, err
	}
	return fetch[T](ctx, c, method, path+suffix, q, in, nil)
}

// Snapshot describes a snapshot, given its id or its tag.
func (c *Client) Snapshot(ctx context.Context, ref string) (Snapshot, error) {
	return onSnapshot[Snapshot](ctx, c, http.MethodGet, "/sandbox/snapshots/", ref, "", nil, nil)
}

// TagSnapshot moves a tag to a snapshot; an empty one clears its tag.
func (c *Client) TagSnapshot(ctx context.Context, ref, tag string) (Snapshot, error) {
	r := TagRequest{}
	if tag != "" {
		r.Tag = &tag
	}
	return onSnapshot[Snapshot](ctx, c, http.MethodPatch, "/sandbox/snapshots/", ref, "", nil, r)
}

// DeleteSnapshot deletes a snapshot, with cascade also those made from it.
func (c *Client) DeleteSnapshot(ctx context.Context, ref string, cascade bool) error {
	path, err := snapshotPath("/sandbox/snapshots/", ref)
	if err != nil {
		return err
	}
	q := url.Values{}
	if cascade {
		q.Set("cascade", "true")
	}
	return c.call(ctx, http.MethodDelete, path, q, nil, nil, nil)
}

// Lineage is a snapshot and what it was made from, the oldest last.
func (c *Client) Lineage(ctx context.Context, ref string) (Lineage, error) {
	return fetch[Lineage](ctx, c, http.MethodGet, "/sandbox/snapshots/lineage", url.Values{"snapshot": {ref}, "limit": {"1000"}}, nil, nil)
}

// SnapshotFiles lists what the layer of a snapshot holds.
func (c *Client) SnapshotFiles(ctx context.Context, ref string, limit, offset int) (ChangeList, error) {
	q := url.Values{}
	setPage(q, "", "", limit, offset)
	return onSnapshot[ChangeList](ctx, c, http.MethodGet, "/v1/snapshots/", ref, "/files", q, nil)
}

// ExportSnapshot writes a snapshot to w, as an OCI image layout in a tar
// archive. An error of w comes back as it is.
func (c *Client) ExportSnapshot(ctx context.Context, ref string, w io.Writer) error {
	path, err := snapshotPath("/v1/snapshots/", ref)
	if err != nil {
		return err
	}
	return c.receive(ctx, path+"/archive", nil, w)
}

// ImportSnapshot makes a snapshot of such an archive. What the request leaves
// empty is as the archive has it.
func (c *Client) ImportSnapshot(ctx context.Context, archive io.Reader, r SnapshotRequest, org string) (Snapshot, error) {
	q := url.Values{}
	for name, v := range map[string]string{"name": r.Name, "description": r.Description, "tag": r.Tag, "projectId": r.ProjectID, "orgId": org} {
		set(q, name, v)
	}
	if r.Public {
		q.Set("public", "true")
	}
	return send[Snapshot](ctx, c, http.MethodPost, "/v1/snapshots/import", q, archive)
}

// CreateCheckpoint keeps the files of a sandbox, to go back to.
func (c *Client) CreateCheckpoint(ctx context.Context, ref, name string) (Checkpoint, error) {
	return one[Checkpoint](ctx, c, http.MethodPost, "/sandbox/%s/checkpoint", "sandbox", ref, nil, CheckpointRequest{Name: name})
}

// Checkpoints lists the checkpoints of a sandbox, newest first.
func (c *Client) Checkpoints(ctx context.Context, ref string) (CheckpointList, error) {
	return one[CheckpointList](ctx, c, http.MethodGet, "/sandbox/checkpoints/%s", "sandbox", ref, nil, nil)
}

// RestoreCheckpoint brings the files of a sandbox back. What runs in it ends.
func (c *Client) RestoreCheckpoint(ctx context.Context, ref, checkpoint string) (Sandbox, error) {
	path, err := checkpointPath(ref, checkpoint)
	if err != nil {
		return Sandbox{}, err
	}
	return fetch[Sandbox](ctx, c, http.MethodPost, path+"/restore", nil, nil, nil)
}

// DeleteCheckpoint deletes a checkpoint.
func (c *Client) DeleteCheckpoint(ctx context.Context, ref, checkpoint string) error {
	path, err := checkpointPath(ref, checkpoint)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

func checkpointPath(ref, checkpoint string) (string, error) {
	path, err := pathOf("/sandbox/%s/checkpoint/", "sandbox", ref)
	switch {
	case err != nil:
		return "", err
	case checkpoint == "", checkpoint == ".", checkpoint == "..":
		return "", fault.InvalidField("checkpoint", "%q is no checkpoint", checkpoint)
	}
	return path + url.PathEscape(checkpoint), nil
}

// Diff says how one point differs from another. Each is written as
// runtime:NAME, snp_… or snapshot:TAG, a sandbox, or SANDBOX@CHECKPOINT.
func (c *Client) Diff(ctx context.Context, from, to string, limit, offset int) (ChangeList, error) {
	q := url.Values{"from": {from}, "to": {to}}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if offset != 0 {
		q.Set("offset", strconv.Itoa(offset))
	}
	return fetch[ChangeList](ctx, c, http.MethodGet, "/v1/diff", q, nil, nil)
}

// DiffFile is the unified diff of one text file between two points.
func (c *Client) DiffFile(ctx context.Context, from, to, path string) (string, error) {
	out, err := fetch[FileDiff](ctx, c, http.MethodGet, "/v1/diff", url.Values{"from": {from}, "to": {to}, "path": {path}}, nil, nil)
	return out.Diff, err
}
