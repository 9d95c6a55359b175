package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// CreateRequest says what sandbox to make. The zero value makes an interactive
// sandbox from the default runtime.
type CreateRequest struct {
	Name        string
	Description string
	Mode        Mode
	Runtime     string // name; default: the server's default runtime
	RuntimeID   string // instead of Runtime
	Snapshot    string // id or tag; instead of a runtime
	Project     string
	Org         string
	Limits      Limits
	Env         map[string]string
	Metadata    map[string]json.RawMessage
	Timeouts    Timeouts
	Files       []File
	Command     []string // for oneshot: what to run; the sandbox is destroyed when it has ended
	Stdin       bool     // for oneshot: the command's stdin stays open until CloseStdin
	// Attended, for oneshot: the command is cancelled when nobody has waited for
	// its end, followed its output or fed its input for a while, as when the
	// caller has died.
	Attended bool
	Network  bool     // outbound network
	Allow    []string // what may be reached, as in Network.Allow; with Network alone
	Port     int      // port to expose
	// Progress, when not nil, is told what takes long, a line at a time.
	Progress func(line string) `json:"-"`
}

// Created is the answer to Create.
type Created struct {
	Sandbox   Sandbox
	Execution *Execution // the command of a oneshot
}

// ExecRequest says what to execute in a sandbox.
type ExecRequest struct {
	Command []string
	Env     map[string]string
	Dir     string
	User    string
	Files   []File
	Timeout time.Duration // zero: the sandbox's, or the server's default
	Stdin   bool          // stdin stays open until CloseStdin; otherwise it is empty
	// Queue lets the command wait, first come first served, while another one
	// is under way; otherwise it is refused as Busy. The number that may wait is
	// bounded. What is queued when the server ends is recorded as cancelled.
	Queue bool

	autoResumed bool           // the sandbox was resumed for it
	who         keys.Principal // asked for it; asked again when its turn comes
}

// Stream selects an output stream of an execution.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// ListRequest selects sandboxes the actor may see. Empty fields do not restrict.
type ListRequest struct {
	Name     string
	Status   []Status
	Mode     Mode
	Project  string
	SortBy   string
	Asc      bool
	Limit    int // default 50, at most 100
	Offset   int
	LiveOnly bool
}

// Operations is everything an Actor can do: the list that doors and their
// tests are written against. *Actor is the implementation. Every method that
// takes ref accepts a sandbox id, or the name of one of the actor's own
// sandboxes; those of others an admin reaches by id. A sandbox that the
// principal may not touch gives the same NotFound as one that is not there.
type Operations interface {
	Principal() keys.Principal

	Create(ctx context.Context, r CreateRequest) (Created, error)
	Get(ctx context.Context, ref string) (Sandbox, error)
	List(ctx context.Context, r ListRequest) ([]Sandbox, int, error)
	// Delete destroys a sandbox. Deleting one that has ended does nothing.
	Delete(ctx context.Context, ref string) error
	// WaitStatus returns as soon as the sandbox has one of the statuses, or
	// with its present state when ctx ends first.
	WaitStatus(ctx context.Context, ref string, want ...Status) (Sandbox, error)

	// Start runs a process that is not recorded as an execution: a shell, a
	// remote command of ssh. It waits for a sandbox that is being created.
	// The process counts as activity until it ends. The caller must call
	// Wait on the result.
	Start(ctx context.Context, ref string, cmd guest.Command, out guest.Output) (Process, error)
	// Dial connects to a socket inside the sandbox.
	Dial(ctx context.Context, ref, network, address string) (guest.Stream, error)
	// WriteFile writes a file inside the sandbox.
	WriteFile(ctx context.Context, ref string, f File) error
	// ReadFile opens a file inside the sandbox; the caller closes it.
	ReadFile(ctx context.Context, ref, path string) (io.ReadCloser, error)

	// Execute starts a recorded execution. Busy when one is under way and it is
	// not to be queued, Exhausted when too many are queued.
	Execute(ctx context.Context, ref string, r ExecRequest) (Execution, error)
	// Execution returns one, after it has ended if wait is positive and that
	// comes within wait.
	Execution(ctx context.Context, id string, wait time.Duration) (Execution, error)
	Executions(ctx context.Context, ref string, limit int) ([]Execution, error)
	Cancel(ctx context.Context, executionID string) error
	// Output copies a stream of an execution to w from its beginning, and goes
	// on until the execution has ended.
	Output(ctx context.Context, executionID string, s Stream, w io.Writer) error
	// WriteStdin copies r to the stdin of a running execution and closes it
	// when r ends.
	WriteStdin(ctx context.Context, executionID string, r io.Reader) error

	Events(ctx context.Context, ref string, afterSeq int64, limit int) ([]Event, error)

	Runtimes(ctx context.Context) ([]Runtime, error)

	// Keys: an admin sees and changes all, a member their own.
	AddKey(ctx context.Context, k keys.Key) (keys.Key, error)
	ListKeys(ctx context.Context) ([]keys.Key, error)
	DeleteKey(ctx context.Context, fingerprint string) error
	// AddAPIKey makes an API key and returns its secret, once.
	AddAPIKey(ctx context.Context, k keys.APIKey) (key keys.APIKey, secret string, err error)
	ListAPIKeys(ctx context.Context) ([]keys.APIKey, error)
	DeleteAPIKey(ctx context.Context, id string) error

	ProjectOperations
	InviteOperations
	LifecycleOperations
	ExecutionOperations
	JobOperations
	FileOperations
	SnapshotOperations
	EventOperations
	SessionOperations
	RecordingOperations
	SocketOperations
	ServerOperations
}

// Process is a running process of Operations.Start: *guest.Process, with
// activity accounted for. The methods are documented there.
type Process interface {
	ID() string
	io.Writer
	CloseWrite() error
	Resize(ctx context.Context, size guest.Size) error
	Signal(ctx context.Context, name string) error
	CloseOutput(ctx context.Context) error
	Hangup(ctx context.Context) error
	Wait(ctx context.Context) (guest.Exit, error)
	Close() error
}

// RootfsProvider turns a runtime name into files: package image. It reports
// progress a line at a time.
type RootfsProvider interface {
	Runtimes(ctx context.Context) ([]Runtime, error)
	// Provide returns the root filesystem of a runtime, making it first if it
	// is not on this host. NotFound for a runtime that does not exist;
	// Unavailable, with the next step, when it cannot be had here.
	Provide(ctx context.Context, nameOrID string, progress func(line string)) (Runtime, Rootfs, error)
	// ProvideDigest returns the files that a runtime had when they had this
	// digest, whatever it stands for by now. It makes nothing: Unavailable,
	// with the next step, when they are not on this host any more.
	ProvideDigest(ctx context.Context, runtime RuntimeRef) (Rootfs, error)
}
