// Package driver is the contract that an isolation technology fulfils.
//
// A driver makes, starts, stops, watches and removes sandboxes and opens one
// byte stream to the guest inside each of them. It runs no user process, knows
// no principal and keeps no record of its own beyond what it needs to find its
// sandboxes again after a crash: processes belong to the guest, permissions
// and state to the Engine.
//
// # Life of a sandbox
//
//	Create → Start → (Dial …) → Stop → Start …  → Remove
//
// and, where the driver can, Suspend and Resume in place of Stop and Start,
// Save while it runs or not, Restore while it does not.
//
// A sandbox outlives the process that created it: after a crash of the server
// a new driver value on the same state folder lists, dials, stops and removes
// what the old one made.
//
// # Errors
//
// All methods return errors of package fault. Each method's comment says which
// codes it promises; anything unexpected is fault.Internal or
// fault.Unavailable with the cause attached. The conformance suite in package
// drivertest holds every driver to this text.
//
// # Concurrency and cancellation
//
// A Driver is safe for concurrent use. Operations on different sandboxes run
// in parallel; operations on one sandbox are serialised by the driver. When a
// context ends before an operation has finished, the operation stops as soon
// as it safely can and returns the context's error wrapped in a fault; Create
// then leaves nothing behind, Start leaves the sandbox stopped, Stop and
// Remove may be called again and complete what is left.
package driver

import (
	"context"
	"io"
	"time"
)

// Driver is one isolation technology on one host.
type Driver interface {
	// Name is the word users choose the driver by: "gvisor", "docker", "fake".
	Name() string

	// Capabilities reports what this driver can do on this host, probed and
	// not assumed. It changes nothing and may be called at any time.
	Capabilities(ctx context.Context) (Capabilities, error)

	// Create makes a sandbox from spec without starting it. It is atomic: on
	// error nothing of the sandbox is left.
	//
	// Codes: Exists when the id is taken; Invalid when the spec is malformed or
	// a layer is missing; Unsupported when a limit is asked for that the host
	// cannot enforce; Exhausted when the disk is full.
	Create(ctx context.Context, spec Spec) error

	// Start boots the sandbox: afterwards its guest runs as PID 1 and Dial
	// succeeds. Starting a running sandbox does nothing. A stopped sandbox
	// starts again with its filesystem as it was.
	//
	// Codes: NotFound.
	Start(ctx context.Context, id string) error

	// Dial opens a byte stream to the guest of a running sandbox. The caller
	// owns the stream and closes it; closing ends the stream inside the
	// sandbox but no process of a user. Several streams may be open at once.
	// A stream ends (EOF or error on Read) when the sandbox stops. The context
	// bounds opening only. Reads and writes may be concurrent with each other;
	// Close unblocks both.
	//
	// Codes: NotFound; State when the sandbox does not run.
	Dial(ctx context.Context, id string) (io.ReadWriteCloser, error)

	// Stop ends the sandbox and every process in it, asking PID 1 first
	// (SIGTERM) and killing after grace; grace 0 kills at once. The filesystem
	// is kept. Stopping what does not run does nothing.
	//
	// Codes: NotFound.
	Stop(ctx context.Context, id string, grace time.Duration) error

	// Remove stops the sandbox if it runs and deletes all of it: processes,
	// mounts, network namespaces, cgroups, files. Removing what does not exist
	// does nothing, so a half-finished Remove can be repeated.
	Remove(ctx context.Context, id string) error

	// Inspect returns the present state, observed and not remembered.
	//
	// Codes: NotFound.
	Inspect(ctx context.Context, id string) (Status, error)

	// List returns every sandbox of this driver and state folder, in id order,
	// for reconciliation. Leftovers that are only partly there are listed with
	// State Broken so that Remove can be called on them.
	List(ctx context.Context) ([]Status, error)

	// Wait blocks until the sandbox is not running and returns its last
	// state; it returns at once when it does not run. It works after a restart
	// of the server too.
	//
	// Codes: NotFound; Cancelled or Timeout with the context.
	Wait(ctx context.Context, id string) (Status, error)

	// Close releases what the driver value itself holds. Sandboxes go on.
	Close() error
}

// Spec is all that a driver needs to make one sandbox.
type Spec struct {
	// ID is unique on the host: 1 to 63 of [a-z0-9_-], starting with a letter.
	ID string
	// Hostname inside the sandbox; ID when empty.
	Hostname string
	// Rootfs is what the sandbox's private, writable filesystem starts from.
	Rootfs Rootfs
	// Guest is the static program that becomes PID 1.
	Guest Guest
	// Limits bound what the sandbox may use. Zero fields are unlimited.
	Limits Limits
	// Network connects the sandbox (FeatureNetwork). Without it the sandbox has
	// a working loopback and nothing else.
	Network bool
	// Labels are kept with the sandbox and returned by List. A driver adds
	// its own to recognise its sandboxes.
	Labels map[string]string
}

// Rootfs describes a root filesystem made of read-only parts. The driver puts
// one private writable layer over all of them; the parts are never written to
// and must not change while a sandbox uses them.
type Rootfs struct {
	// Layers are absolute host directories, the topmost first. A driver that
	// needs an image format of its own converts and caches by Digest. Deleted
	// files of lower layers are marked the way overlayfs marks them.
	Layers []string
	// Saved lie over Layers: directories that Saver.Save or Import of this
	// driver has filled (FeatureSave), the topmost first.
	Saved []string
	// Digest identifies the content of Layers ("sha256:…"). Equal digests may
	// share a driver's cache. Empty means: do not cache.
	Digest string
	// HostDirs are host directories shown inside, each below the private
	// writable layer, so that a sandbox may change its view and never the host.
	// A target may lie below that of another one and covers it there.
	HostDirs []HostDir
}

// HostDir shows the host directory Source at the absolute path Target.
type HostDir struct {
	Source string
	Target string
}

// GuestPath is where every driver shows the guest program inside a sandbox.
// The guest decides what to be by its first argument (see package guest).
const GuestPath = "/.sandgate/guest"

// Guest is the program that runs as PID 1. It is shown read-only at GuestPath
// and run as `GuestPath init`; a stream is opened by running `GuestPath relay`
// inside the sandbox with the stream as stdin and stdout. Both run as root of
// the sandbox.
type Guest struct {
	// Path of the program on the host. Content-addressed: the file at this
	// path never changes and stays as long as a sandbox uses it.
	Path string
	// Env is the environment of PID 1 ("KEY=value").
	Env []string
}

// Limits bound one sandbox. Zero means unlimited.
type Limits struct {
	MemoryBytes int64 // hard limit of everything inside; exceeding it ends this sandbox alone
	CPUMillis   int64 // thousandths of one core
	DiskBytes   int64 // size of the private writable layer; ENOSPC inside when full
	Processes   int64 // processes and threads inside
}

// State is what a driver sees of a sandbox.
type State string

// The driver states.
const (
	Created State = "created" // made, never started
	Running State = "running" // PID 1 is alive
	Stopped State = "stopped" // was started, does not run; filesystem kept
	Broken  State = "broken"  // leftovers; only Remove makes sense
)

// Status is one sandbox as the driver sees it.
type Status struct {
	ID     string
	State  State
	Exit   Exit // meaningful when State is Stopped
	Memory bool // State is Stopped and Suspender.Resume can bring the processes back
	Labels map[string]string
}

// Exit says how a sandbox ended, as far as the host knows.
type Exit struct {
	OOM    bool   // it was ended because it exceeded its memory limit
	Reason string // one clause for a person: "stopped", "out of memory (limit 256Mi)"; empty when unknown
}

// Capabilities is what a driver can do here.
type Capabilities struct {
	Driver  string             // Name()
	Version string             // of the technology
	Mode    string             // "root", "unprivileged", or the address of an engine
	Support map[string]Support // by the Feature constants; every feature has an entry
}

// Features that Capabilities reports on.
const (
	FeatureMemoryLimit  = "memory limit"
	FeatureCPULimit     = "cpu limit"
	FeatureDiskLimit    = "disk limit"
	FeatureProcessLimit = "process limit"
	FeatureDurableFiles = "files survive a crash of the sandbox or the host"
	FeatureHostDirs     = "host directories"
	FeatureCheckpoint   = "memory checkpoint" // Suspender
	FeatureSave         = "snapshots"         // Saver
	FeatureResize       = "live limits"       // Resizer
	FeatureNetwork      = "network"           // Spec.Network
)

// Features lists every feature, in the order doctor prints them.
func Features() []string {
	return []string{FeatureMemoryLimit, FeatureCPULimit, FeatureDiskLimit, FeatureProcessLimit, FeatureDurableFiles, FeatureHostDirs,
		FeatureCheckpoint, FeatureSave, FeatureResize, FeatureNetwork}
}

// Support says whether a feature works here, and if not why and what helps.
type Support struct {
	OK     bool
	Reason string // one line; for OK it may say how
}

// Usage is what a sandbox uses right now, as the host accounts for it.
type Usage struct {
	MemoryBytes int64
	CPU         time.Duration // total since start
	Processes   int64
	DiskBytes   int64 // private writable layer; -1 when not known
}

// Stats is an optional capability: a driver that can account for a running
// sandbox implements it.
type Stats interface {
	// Usage returns the present use. Codes: NotFound; State when not running.
	Usage(ctx context.Context, id string) (Usage, error)
}

// Cleaner is an optional capability: finding and removing what a crash left on
// the host that belongs to no listed sandbox (mounts, cgroups, namespaces).
type Cleaner interface {
	// Leftovers lists, and with fix removes, such things, one line each.
	Leftovers(ctx context.Context, fix bool) ([]string, error)
}
