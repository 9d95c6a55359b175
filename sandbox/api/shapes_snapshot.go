package api

import (
	"encoding/json"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// SnapshotRequest is the body of POST /sandbox/{id}/snapshot. Without a tag it
// is "latest", which moves here; "-" is none.
type SnapshotRequest struct {
	Name        string                     `json:"name,omitempty"`
	Description string                     `json:"description,omitempty"`
	Tag         string                     `json:"tag,omitempty"`
	Public      bool                       `json:"public,omitempty"`
	ProjectID   string                     `json:"projectId,omitempty"`
	Metadata    map[string]json.RawMessage `json:"metadata,omitempty"`
}

func (q SnapshotRequest) domain(org string) sandbox.SnapshotRequest {
	return sandbox.SnapshotRequest{Name: q.Name, Description: q.Description, Tag: q.Tag, Public: q.Public, Project: q.ProjectID, Org: org, Metadata: q.Metadata}
}

// Snapshot describes a snapshot. Size and number of files are those of its own
// layer, without what is under it. DownloadURL opens for a day without another
// key.
type Snapshot struct {
	SnapshotID       string            `json:"snapshotId"`
	Name             string            `json:"name"`
	Description      string            `json:"description,omitempty"`
	Tag              string            `json:"tag,omitempty"`
	Public           bool              `json:"public"`
	SizeBytes        int64             `json:"sizeBytes"`
	FileCount        int               `json:"fileCount"`
	ParentSnapshotID string            `json:"parentSnapshotId,omitempty"`
	SandboxID        string            `json:"sandboxId,omitempty"` // it was taken from
	RuntimeID        string            `json:"runtimeId,omitempty"`
	Runtime          string            `json:"runtime,omitempty"`
	Engine           string            `json:"engine,omitempty"` // the only one that can read it
	Org              *Named            `json:"org,omitempty"`
	User             *Named            `json:"user,omitempty"`
	Project          *Named            `json:"project,omitempty"`
	UserMetadata     map[string]string `json:"userMetadata,omitempty"`
	CreatedAt        time.Time         `json:"createdAt"`
	DownloadURL      string            `json:"downloadUrl,omitempty"`
}

// SnapshotList answers GET /sandbox/snapshots.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
	Total     int        `json:"total"`
}

// Lineage answers GET /sandbox/snapshots/lineage: a snapshot and what it was
// made from, the oldest last.
type Lineage struct {
	Lineage []Snapshot `json:"lineage"`
	Total   int        `json:"total"`
}

// TagRequest is the body of PATCH /sandbox/snapshots/{id}; null clears the tag.
type TagRequest struct {
	Tag *string `json:"tag"`
}

func snapshotShape(p sandbox.Snapshot) Snapshot {
	out := Snapshot{
		SnapshotID: p.ID, Name: p.Name, Description: p.Description, Tag: p.Tag, Public: p.Public, SizeBytes: p.SizeBytes, FileCount: p.Files,
		ParentSnapshotID: p.Parent, SandboxID: p.SandboxID, RuntimeID: p.Runtime.ID, Runtime: p.Runtime.Name, Engine: p.Driver,
		CreatedAt: p.CreatedAt.UTC(),
	}
	if p.Org != "" {
		out.Org = &Named{p.Org, p.Org}
	}
	if p.Owner != "" {
		out.User = &Named{p.Owner, p.Owner}
	}
	if p.Project != "" {
		out.Project = &Named{p.Project, p.Project}
	}
	for k, raw := range p.Metadata {
		if out.UserMetadata == nil {
			out.UserMetadata = map[string]string{}
		}
		var text string
		if json.Unmarshal(raw, &text) != nil { // not a string: as it is written
			text = string(raw)
		}
		out.UserMetadata[k] = text
	}
	return out
}

// CheckpointRequest is the body of POST /sandbox/{id}/checkpoint. Without a
// name it is that of the moment.
type CheckpointRequest struct {
	Name string `json:"name,omitempty"`
}

// Checkpoint is a named restore point of the files of one sandbox.
type Checkpoint struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Parent    string    `json:"parent"` // always empty: each holds all of the sandbox's own files
	SandboxID string    `json:"sandboxId"`
	SizeBytes int64     `json:"sizeBytes"`
	FileCount int       `json:"fileCount"`
}

// CheckpointList answers GET /sandbox/checkpoints/{id}, newest first.
type CheckpointList struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

func checkpointShape(c sandbox.Checkpoint) Checkpoint {
	return Checkpoint{ID: c.ID, Name: c.Name, CreatedAt: c.CreatedAt.UTC(), SandboxID: c.SandboxID, SizeBytes: c.SizeBytes, FileCount: c.Files}
}

// Change is a path that differs between two points, or an entry of a snapshot.
type Change struct {
	Path    string    `json:"path"`
	Kind    string    `json:"kind"` // added, changed, removed
	Type    string    `json:"type,omitempty"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"`
	Why     string    `json:"why,omitempty"` // for changed: content, mode, owner, type, target
	ModTime time.Time `json:"modTime,omitzero"`
}

// ChangeList answers GET /v1/diff and GET /v1/snapshots/{id}/files. Total counts
// all; the list ends at the limit that was asked for.
type ChangeList struct {
	Changes []Change `json:"changes"`
	Total   int      `json:"total"`
}

// FileDiff answers GET /v1/diff with a path: a unified diff, empty when the
// file is the same.
type FileDiff struct {
	Path string `json:"path"`
	Diff string `json:"diff"`
}

func changeShapes(all []sandbox.Change, offset, limit int) ChangeList {
	out := ChangeList{Changes: []Change{}, Total: len(all)}
	all = all[min(offset, len(all)):]
	for _, c := range all[:min(limit, len(all))] {
		out.Changes = append(out.Changes, Change{
			Path: c.Path, Kind: string(c.Kind), Type: c.Type, Size: c.Size, Mode: c.Mode, Why: c.Why, ModTime: c.Mtime.UTC(),
		})
	}
	return out
}
