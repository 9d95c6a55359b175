package sandbox

import (
	"context"
	"time"
)

// Usage is what one sandbox uses.
type Usage struct {
	SandboxID   string
	At          time.Time
	CPU         time.Duration // since its creation
	MemoryBytes int64         // now
	DiskBytes   int64         // now; -1 when not known
	Processes   int64         // now
	NetIn       int64         // bytes since its creation
	NetOut      int64         // bytes since its creation
	Limits      Limits

	MemorySecond float64       // byte seconds since its creation
	Uptime       time.Duration // since its creation, without the times it was down
	Raw          Counters      // what the others are counted on from
}

// Counters are counts of the driver and of the network, which begin at zero
// whenever a sandbox starts.
type Counters struct {
	CPU    time.Duration
	NetIn  int64
	NetOut int64
}

// Stats sums up the use of many sandboxes over a time.
type Stats struct {
	Start, End   time.Time
	Sandboxes    int            // that existed at some moment of it
	ByStatus     map[Status]int // now
	Executions   int            // started in it
	Jobs         int            // started in it
	CPU          time.Duration  // used in it
	MemoryBytes  int64          // now
	MemorySecond float64        // byte seconds used in it
	DiskBytes    int64          // now
	NetIn        int64          // bytes in it
	NetOut       int64          // bytes in it
	Uptime       time.Duration  // of all sandboxes together, in it
}

// UsageStore keeps samples of use. It works as Store does.
type UsageStore interface {
	AddUsage(ctx context.Context, samples []Usage) error
	// LastUsage returns the newest sample of a sandbox; NotFound without one.
	LastUsage(ctx context.Context, sandboxID string) (Usage, error)
	// Stats sums up the sandboxes of an owner, or of all when it is empty.
	Stats(ctx context.Context, owner, org string, start, end time.Time) (Stats, error)
	// TrimUsage drops samples before a time, but for the last of each sandbox.
	TrimUsage(ctx context.Context, before time.Time) error
	// ThinUsage leaves of the samples from a time to another the last of each
	// step, of each sandbox.
	ThinUsage(ctx context.Context, from, to time.Time, step time.Duration) error

	// Held sums up the limits of what is live, of an owner, of an org, or of
	// both; empty does not restrict. What is paused or suspended holds its
	// disk, but neither memory nor CPU.
	Held(ctx context.Context, owner, org string) (Quota, error)
	// SavedBytes sums up the layers that an owner keeps: those of snapshots,
	// with all that came in with an imported one, of checkpoints, and of live
	// forks. A layer that several name counts once.
	SavedBytes(ctx context.Context, owner string) (int64, error)
	// Due returns sandboxes of a driver whose time is up: paused ones that
	// terminate by now, and idle ones whose idle timeout has passed since
	// ActiveAt. It does not look at the others.
	Due(ctx context.Context, driver string, now time.Time, limit int) ([]Sandbox, error)
	// TouchSandbox notes activity; ActiveAt never goes back. It changes
	// nothing else, UpdatedAt included.
	TouchSandbox(ctx context.Context, id string, at time.Time) error
}

// Quota bounds what one principal, or one org, may have live at a time. Zero
// fields are unlimited.
type Quota struct {
	Sandboxes   int
	MemoryBytes int64
	CPUMillis   int64
	DiskBytes   int64
	SavedBytes  int64 // in layers of snapshots, imports, checkpoints and forks; of members alone
}

// LifecycleOperations are what an Actor can do with the life and the size of a
// sandbox. ref is as in Operations.
type LifecycleOperations interface {
	// Pause stops a sandbox so that it costs neither memory nor CPU, and
	// answers when all it needs to go on is durable. Where the driver can, the
	// processes are kept; otherwise they end. Pausing a paused one does
	// nothing.
	Pause(ctx context.Context, ref string) (Sandbox, error)
	// Resume brings a paused or suspended sandbox up again. One that is up is
	// left alone.
	Resume(ctx context.Context, ref string) (Sandbox, error)
	// SetEnv changes the variables that commands get from now on; nil deletes
	// one. It returns all of them.
	SetEnv(ctx context.Context, ref string, env map[string]*string) (map[string]string, error)
	// Update changes what can change while a sandbox lives. Nil fields stay.
	Update(ctx context.Context, ref string, u UpdateRequest) (Sandbox, error)
	// Countdown tells when, and why, the system will next end or pause a
	// sandbox if nothing happens in it; the zero time for never.
	Countdown(ctx context.Context, ref string) (at time.Time, why string, err error)

	// Usage is what a sandbox uses now.
	Usage(ctx context.Context, ref string) (Usage, error)
	// Stats sums up what the actor may see; an admin sees all of an org, or of
	// the server.
	Stats(ctx context.Context, org string, start, end time.Time) (Stats, error)

	// Subscribe follows the events of one sandbox, or of all the actor may see
	// when ref is empty, from now on or after a sequence number.
	Subscribe(ctx context.Context, ref string, afterSeq int64) (*Subscription, error)
}

// UpdateRequest changes a sandbox. Nil fields stay as they are.
type UpdateRequest struct {
	Name        *string
	Description *string
	Limits      *Limits // zero fields stay as they are
	Timeouts    *Timeouts
	Network     *Network
}
