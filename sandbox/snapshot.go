package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Layer is a saved layer: the private files of a sandbox at one moment, on the
// disk of the host whose driver wrote it. Snapshots, checkpoints and forks
// name layers; one that nothing names any more is removed.
type Layer struct {
	ID            string   // layer_…; its folder has this name
	Driver        string   // only this driver can read it
	Below         []string // ids of the layers under it, the topmost first
	RuntimeDigest string   // of the files under all of them
	SizeBytes     int64    // of regular files
	Files         int      // entries that are no directory
	Digest        string   // of its OCI form ("sha256:…"), empty until needed
	CreatedAt     time.Time
}

// Snapshot is the record of an immutable filesystem that sandboxes can be made
// from. Environment and secrets of the sandbox it was taken from are not part
// of it.
type Snapshot struct {
	ID          string // snp_…
	Name        string // for people; need not be unique
	Tag         string // unique among the snapshots of one owner; may be empty
	Description string
	Public      bool   // everybody may create from it
	Owner       string // keys.Principal.ID
	Project     string
	Org         string
	SandboxID   string // it was taken from; empty when it was imported
	Parent      string // the snapshot that sandbox was made from; may be empty
	Layer       string // Layer.ID
	Driver      string
	Runtime     RuntimeRef
	Metadata    map[string]json.RawMessage
	SizeBytes   int64 // of its own layer
	Files       int   // in its own layer
	CreatedAt   time.Time
}

// Checkpoint is a named restore point of one sandbox: files, not memory.
type Checkpoint struct {
	ID        string // ckpt_…
	SandboxID string
	Name      string // unique in the sandbox
	Layer     string
	SizeBytes int64
	Files     int
	CreatedAt time.Time
}

// SnapshotRequest says how to keep a snapshot.
type SnapshotRequest struct {
	Name        string
	Description string
	Tag         string // moves here from the snapshot that has it; "" means latest, NoTag none
	Public      bool
	Project     string
	Org         string
	Metadata    map[string]json.RawMessage
}

// NoTag in SnapshotRequest.Tag keeps a snapshot untagged.
const NoTag = "-"

// DefaultTag is the tag of a snapshot that names none.
const DefaultTag = "latest"

// SnapshotFilter selects snapshots. Empty fields do not restrict.
type SnapshotFilter struct {
	Owner   string // only this owner's
	Public  bool   // together with Owner: or public; alone: only public ones
	Sandbox string // taken from this one
	Tag     string
	Parent  string
	Seen    *Visibility // within its scope: taken from a sandbox, or of a project, in it
	SortBy  string      // "name", "created", "size", "files"; default "created"
	Asc     bool        // default: descending
	Limit   int         // 0: all
	Offset  int
}

// SnapshotStore keeps snapshots, checkpoints and the layers they name. It
// works as Store does.
type SnapshotStore interface {
	AddLayer(ctx context.Context, l Layer) error
	Layer(ctx context.Context, id string) (Layer, error)
	Layers(ctx context.Context) ([]Layer, error)
	SetLayerDigest(ctx context.Context, id, digest string) error
	// DeleteLayer forgets a layer. State when a snapshot, a checkpoint, a live
	// sandbox or another layer still names it.
	DeleteLayer(ctx context.Context, id string) error

	// CreateSnapshot records a snapshot with its layer and the event on the
	// sandbox, when there is one. It takes the tag away from the snapshot of
	// the same owner that has it.
	CreateSnapshot(ctx context.Context, s Snapshot, l Layer, events ...Event) error
	// UpdateSnapshot works as UpdateSandbox does, and moves the tag.
	UpdateSnapshot(ctx context.Context, id string, change func(*Snapshot) error) (Snapshot, error)
	Snapshot(ctx context.Context, id string) (Snapshot, error)
	Snapshots(ctx context.Context, f SnapshotFilter) ([]Snapshot, int, error)
	// DeleteSnapshot forgets a snapshot. State when live sandboxes or other
	// snapshots build on it, unless these are in also, which go with it.
	DeleteSnapshot(ctx context.Context, id string, also ...string) error

	// CreateCheckpoint records a checkpoint with its layer. Exists with Field
	// "name" when the sandbox has one of that name.
	CreateCheckpoint(ctx context.Context, c Checkpoint, l Layer, events ...Event) error
	// Checkpoints returns those of one sandbox, or of all when sandboxID is
	// empty; newest first.
	Checkpoints(ctx context.Context, sandboxID string) ([]Checkpoint, error)
	DeleteCheckpoint(ctx context.Context, id string, events ...Event) error
}

// SnapshotOperations are what an Actor can do with the files of a sandbox as a
// whole. ref is as in Operations; snapshot is an id or a tag of the actor's
// own; checkpoint an id or a name. A public snapshot of somebody else can be
// seen and used by its id, and changed by nobody but its owner and an admin.
// Of one that is not public there is nothing to know for others.
type SnapshotOperations interface {
	// CreateSnapshot keeps the files of a sandbox, which may run or be paused,
	// and answers when they are durable.
	CreateSnapshot(ctx context.Context, ref string, r SnapshotRequest) (Snapshot, error)
	Snapshot(ctx context.Context, snapshot string) (Snapshot, error)
	// Snapshots lists the actor's own snapshots, an admin's are all. With
	// f.Public alone it lists everybody's public ones, with f.Owner as well
	// both.
	Snapshots(ctx context.Context, f SnapshotFilter) ([]Snapshot, int, error)
	// TagSnapshot moves a tag to a snapshot; an empty one clears its tag.
	TagSnapshot(ctx context.Context, snapshot, tag string) (Snapshot, error)
	// DeleteSnapshot deletes a snapshot. It is refused with State while
	// sandboxes or snapshots were made from it, and says which; with cascade
	// these snapshots go too, the sandboxes never.
	DeleteSnapshot(ctx context.Context, snapshot string, cascade bool) error
	// Lineage is the snapshot and its ancestors, the oldest last.
	Lineage(ctx context.Context, snapshot string) ([]Snapshot, error)
	// SnapshotFiles lists what the snapshot's own layer holds.
	SnapshotFiles(ctx context.Context, snapshot string) ([]Change, error)
	// SandboxesOf lists the live sandboxes made from a snapshot.
	SandboxesOf(ctx context.Context, snapshot string) ([]Sandbox, error)

	CreateCheckpoint(ctx context.Context, ref, name string) (Checkpoint, error)
	Checkpoints(ctx context.Context, ref string) ([]Checkpoint, error)
	// RestoreCheckpoint brings the files of a sandbox back. What runs in it
	// ends; it is up again afterwards if it was up before.
	RestoreCheckpoint(ctx context.Context, ref, checkpoint string) (Sandbox, error)
	DeleteCheckpoint(ctx context.Context, ref, checkpoint string) error

	// Fork makes a second sandbox with the files of the first, which runs on.
	// The request overrides what is inherited; variables are inherited only
	// with env.
	Fork(ctx context.Context, ref string, r ForkRequest) (Sandbox, error)

	// Diff says how to differs from from. Both are a runtime, a snapshot, a
	// checkpoint or a sandbox (its files now), see ParsePoint.
	Diff(ctx context.Context, from, to Point) ([]Change, error)
	// DiffFile is the unified diff of one text file between two points.
	DiffFile(ctx context.Context, from, to Point, path string) (string, error)

	// ExportSnapshot writes a snapshot, with all that is under it, as an OCI
	// image layout in a tar archive.
	ExportSnapshot(ctx context.Context, snapshot string, w io.Writer) error
	// ImportSnapshot makes a snapshot of such an archive.
	ImportSnapshot(ctx context.Context, r io.Reader, q SnapshotRequest) (Snapshot, error)
}

// ForkRequest says how the second sandbox differs from the first.
type ForkRequest struct {
	Name        string
	Description string
	InheritEnv  bool              // variables may hold secrets: only when asked for
	Env         map[string]string // on top of what is inherited
	Limits      Limits            // zero fields: those of the first
	Timeouts    *Timeouts         // nil: those of the first
}

// Point is one side of a diff: a runtime, a snapshot, a sandbox as it is now,
// or a checkpoint together with its sandbox.
type Point struct {
	Runtime    string // name or id
	Snapshot   string // id or tag
	Checkpoint string // id or name, together with Sandbox
	Sandbox    string // id or name
}

// Change is one path that differs between two points, or one entry of a layer.
type Change struct {
	Path  string // absolute
	Kind  ChangeKind
	Type  string // "file", "dir", "link", "other", of the newer side
	Size  int64  // of the newer side; of the older for Removed
	Mode  uint32 // permission bits of the newer side
	Why   string // for Changed: what differs: "content", "mode", "owner", "type", "target"
	Mtime time.Time
}

// ChangeKind is what happened to a path.
type ChangeKind string

// The kinds of change.
const (
	Added   ChangeKind = "added"
	Changed ChangeKind = "changed"
	Removed ChangeKind = "removed"
)
