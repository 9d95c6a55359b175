// Package sandbox is the domain: what a sandbox is, what may be done to it and
// by whom. It knows no isolation technology, no database and no protocol of
// the outside; those are handed to it.
//
// The [Engine] holds the state machine. Nothing can be done with an Engine
// alone: [Engine.As] binds it to a principal, and every operation is a method
// of the resulting [Actor], so no door can forget to ask who is there.
package sandbox

import (
	"encoding/json"
	"time"
)

// Status is where a sandbox is in its life.
type Status string

// The statuses. See Transitions for the moves between them.
const (
	Creating   Status = "creating"   // being made
	Idle       Status = "idle"       // up, no execution under way
	Running    Status = "running"    // up, an execution is under way
	Paused     Status = "paused"     // stopped on request, can be resumed
	Stopping   Status = "stopping"   // being destroyed
	Suspended  Status = "suspended"  // stopped by the system, can be resumed
	Terminated Status = "terminated" // ended; nothing is left of it but its record
	Failed     Status = "failed"     // died or could not be made; StatusReason says why
	Deleted    Status = "deleted"    // destroyed on request; kept in the record for a while
)

// Live reports whether the sandbox exists on a host (or will in a moment).
func (s Status) Live() bool {
	switch s {
	case Creating, Idle, Running, Paused, Stopping, Suspended:
		return true
	}
	return false
}

// Up reports whether its guest can be talked to.
func (s Status) Up() bool { return s == Idle || s == Running }

// Mode is how a sandbox is meant to be used.
type Mode string

// The modes.
const (
	Oneshot     Mode = "oneshot"     // runs one command and is destroyed
	Interactive Mode = "interactive" // lives until it is destroyed
)

// Sandbox is the record of one sandbox.
type Sandbox struct {
	ID           string
	Name         string // unique among live sandboxes of one owner; may be empty
	Description  string
	Mode         Mode
	Status       Status
	StatusReason string // one clause for a person, for Failed and Terminated
	Owner        string // keys.Principal.ID
	Project      string
	Org          string
	Driver       string
	Runtime      RuntimeRef
	Limits       Limits
	Env          map[string]string
	Metadata     map[string]json.RawMessage
	Timeouts     Timeouts
	Command      []string // what a oneshot runs
	Executions   int      // how many were started in it
	ExitCode     *int     // of the last execution, once the sandbox has ended
	Guest        string   // digest of the guest program it runs with
	CreatedAt    time.Time
	UpdatedAt    time.Time
	EndedAt      time.Time // zero while live
	ActiveAt     time.Time // last activity that counts against the idle timeout
	Port         int       // exposed; 0 for none
	Network      *Network  // nil: none
	SnapshotID   string    // it was made from; empty for a runtime alone
	SnapshotTag  string    // of that snapshot, then
	Parent       string    // the sandbox it was forked from; may be empty
	Layers       []string  // ids of the saved layers under its private one, the topmost first
	PausedAt     time.Time // zero unless paused
	TerminatesAt time.Time // end of the paused timeout; zero for never
	Memory       bool      // paused with its memory and processes
}

// Network is a sandbox's way out. Nothing can come in but through the engine.
type Network struct {
	// Allow lists what may be reached, one rule each: "github.com",
	// "*.npmjs.org:443", "10.1.0.0/16:5432", "udp:1.1.1.1:53". Nil allows
	// every public address and name; an empty list nothing.
	Allow []string
}

// RuntimeRef is the runtime a sandbox was made from, as it was then.
type RuntimeRef struct {
	ID         string
	Name       string
	IconURL    string
	BrandColor string
	Tags       []string
	Source     string // where its files came from: "oci:docker.io/library/debian:stable", "debian bootstrap trixie", "this host"
	Digest     string // of the root filesystem; empty for this host
}

// Limits bound a sandbox. Zero is unlimited.
type Limits struct {
	MemoryBytes int64
	CPUMillis   int64
	DiskBytes   int64
	Processes   int64
}

// Timeouts are the clocks of a sandbox. Zero means none, but for Execution,
// where zero means the server's default.
type Timeouts struct {
	Idle      time.Duration
	Execution time.Duration
	Paused    time.Duration
}

// Runtime is a base environment sandboxes are made from.
type Runtime struct {
	ID           string
	Name         string
	Description  string
	IconURL      string
	BrandColor   string
	URL          string
	Tags         []string
	Requirements Limits
	Ready        bool   // its files are on this host already
	Source       string // where they came or would come from, for a person
	Digest       string
}

// ExecutionStatus is where an execution is in its life.
type ExecutionStatus string

// The execution statuses.
const (
	ExecQueued    ExecutionStatus = "queued" // waits for the sandbox; does not outlive the server
	ExecRunning   ExecutionStatus = "running"
	ExecCompleted ExecutionStatus = "completed" // exit 0
	ExecFailed    ExecutionStatus = "failed"    // any other exit, or it could not start
	ExecTimeout   ExecutionStatus = "timeout"
	ExecCancelled ExecutionStatus = "cancelled"
)

// Done reports whether the execution has ended.
func (s ExecutionStatus) Done() bool { return s != ExecQueued && s != ExecRunning }

// Execution is the record of one foreground command.
type Execution struct {
	ID              string
	SandboxID       string
	Status          ExecutionStatus
	Command         []string
	ExitCode        *int
	Error           string
	Timeout         time.Duration
	StdoutBytes     int64 // kept
	StderrBytes     int64 // kept
	OutputTruncated bool
	AutoResumed     bool // the sandbox was paused and resumed for it
	CreatedAt       time.Time
	StartedAt       time.Time
	EndedAt         time.Time
}

// Event is one lifecycle fact. Events of one sandbox are gap-free: Seq counts
// 1, 2, 3 … within it.
type Event struct {
	ID        string // evt_…
	SandboxID string
	Seq       int64
	Type      EventType
	Principal string // who caused it; "system" for the server itself
	Data      map[string]any
	At        time.Time
	Owner     string // of the sandbox
	Position  int64  // its place among the events of all sandboxes: 1, 2, 3 …
}

// EventType names what happened; the same verbs as everywhere else.
type EventType string

// The events of this version.
const (
	EventCreate              EventType = "create"
	EventDestroy             EventType = "destroy"
	EventLifecycleStarted    EventType = "lifecycle:started"
	EventLifecycleCompleted  EventType = "lifecycle:completed"
	EventLifecycleFailed     EventType = "lifecycle:failed"
	EventLifecycleTerminated EventType = "lifecycle:terminated"
	EventLifecycleSuspended  EventType = "lifecycle:suspended" // it stopped by itself and can be started again
	EventExecQueued          EventType = "execution:queued"
	EventExecStarted         EventType = "execution:started"
	EventExecEnded           EventType = "execution:ended"
	EventPause               EventType = "pause"
	EventResume              EventType = "resume"
	EventUpdate              EventType = "update"
	EventFork                EventType = "fork"
	EventSnapshotCreate      EventType = "snapshot:create"
	EventCheckpointCreate    EventType = "checkpoint:create"
	EventCheckpointRestore   EventType = "checkpoint:restore"
	EventCheckpointDelete    EventType = "checkpoint:delete"
	EventJobCreated          EventType = "job:created"
	EventJobStarted          EventType = "job:started"
	EventJobEnded            EventType = "job:ended"
	EventNetworkRefused      EventType = "network:refused" // what it wanted to reach and the rule that is missing
	EventSSHConnect          EventType = "ssh:connect"     // a connection uses the sandbox
	EventSSHDisconnect       EventType = "ssh:disconnect"  // it has ended, and what it did
)

// File is a file to write into a sandbox before anything runs.
type File struct {
	Path    string // relative to the workspace, or absolute
	Content []byte
	Mode    uint32 // permission bits; zero means 0644
}

// Workspace is the directory shells, commands and file transfers start in.
const Workspace = "/workspace"
