package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/keys"
)

// Store keeps the records. Every method is one transaction that is durable
// when it returns nil. Implementations return fault errors: NotFound, Exists
// where a unique name or id is taken, Exhausted when the disk is full,
// Unavailable when the database does not answer.
//
// The interface has no type of any database, so that several servers can share
// another kind of store one day.
type Store interface {
	// CreateSandbox records a new sandbox and its first event. Exists with
	// Field "name" when the owner has a live sandbox of that name; NotFound
	// when one of its saved layers is not recorded any more.
	CreateSandbox(ctx context.Context, s Sandbox, ev Event) error
	// UpdateSandbox reads the sandbox, lets change alter it and name the
	// events that say why, and writes all of it at once. An error of change
	// is returned as it is and nothing is written. It returns what was
	// written. change may be called again when the transaction is retried.
	// Seq, and ID and At when they are empty, are filled in for the events.
	UpdateSandbox(ctx context.Context, id string, change func(*Sandbox) ([]Event, error)) (Sandbox, error)
	// Sandbox returns one record by id, ended ones included.
	Sandbox(ctx context.Context, id string) (Sandbox, error)
	// Sandboxes returns the page of records that match and how many match.
	Sandboxes(ctx context.Context, f SandboxFilter) ([]Sandbox, int, error)

	// CreateExecution records an execution with its events, counts it on its
	// sandbox, and moves an idle sandbox to running, all in one transaction.
	CreateExecution(ctx context.Context, x Execution, events ...Event) error
	// UpdateExecution works as UpdateSandbox does. When the last open
	// execution of a running sandbox has ended by it, the same transaction
	// moves the sandbox back to idle and notes the activity (ActiveAt).
	UpdateExecution(ctx context.Context, id string, change func(*Execution) ([]Event, error)) (Execution, error)
	Execution(ctx context.Context, id string) (Execution, error)
	// Executions returns those of one sandbox, newest first; limit 0 is all.
	Executions(ctx context.Context, sandboxID string, limit int) ([]Execution, error)
	// ExecutionHistory returns a page of them and how many there are.
	ExecutionHistory(ctx context.Context, sandboxID string, limit, offset int) ([]Execution, int, error)
	// OpenExecutions returns every execution that has not ended.
	OpenExecutions(ctx context.Context) ([]Execution, error)

	EventStore
	JobStore
	KeyStore
	RecordingStore
	MemberStore
	InviteStore
	SessionStore
	SnapshotStore
	UsageStore

	Close() error
}

// KeyStore keeps public keys and API keys.
type KeyStore interface {
	// AddKey registers a key. Exists when the fingerprint is registered.
	AddKey(ctx context.Context, k keys.Key) error
	Key(ctx context.Context, fingerprint string) (keys.Key, error)
	Keys(ctx context.Context) ([]keys.Key, error)
	DeleteKey(ctx context.Context, fingerprint string) error
	// TouchKey notes a use. Losing a touch in a crash is allowed.
	TouchKey(ctx context.Context, fingerprint string, at time.Time) error

	AddAPIKey(ctx context.Context, k keys.APIKey) error
	// APIKeyByHash finds an API key by the hash of its secret.
	APIKeyByHash(ctx context.Context, hash string) (keys.APIKey, error)
	APIKeys(ctx context.Context) ([]keys.APIKey, error)
	DeleteAPIKey(ctx context.Context, id string) error
	TouchAPIKey(ctx context.Context, id string, at time.Time) error
}

// SandboxFilter selects records. Empty fields do not restrict.
type SandboxFilter struct {
	Owner    string
	Name     string // exact
	Project  string
	Mode     Mode
	Snapshot string // made from it
	Statuses []Status
	LiveOnly bool
	Seen     *Visibility
	// DeletedOnly and IncludeEnded: by default neither restricts; callers set
	// LiveOnly for the usual listing.
	SortBy string // "name", "created", "updated", "status", "mode", "execution_count"; default "created"
	Asc    bool   // default: descending
	Limit  int    // 0: all
	Offset int
}
