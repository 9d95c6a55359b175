package driver

import "context"

// Suspender is an optional capability (FeatureCheckpoint): stopping a sandbox
// with its memory and processes kept on disk, so that it costs no memory and
// goes on later where it was.
type Suspender interface {
	// Suspend saves the memory and all processes of a running sandbox and
	// stops it. When it returns nil the image and the files are durable, and
	// Status.Memory is true until the next Start, Resume, Stop, Restore or
	// Remove. On an error the sandbox runs on as it did, or is stopped with
	// its files when that could not be had; Inspect tells.
	//
	// Streams of Dial end. The caller closes them before, so that the guest
	// has nothing half sent.
	//
	// Codes: NotFound; State when it does not run; Exhausted when the disk is
	// full; Unsupported.
	Suspend(ctx context.Context, id string) error

	// Resume starts a sandbox that Suspend has stopped, processes and all, and
	// uses the image up. Where the image does not fit any more (another build,
	// another CPU, a damaged file) the sandbox starts from its files alone and
	// the answer says why. A sandbox without an image is started, a running
	// one left alone.
	//
	// Codes: NotFound.
	Resume(ctx context.Context, id string) (Resumption, error)
}

// Resumption says how a sandbox came back.
type Resumption struct {
	Memory bool   // with its memory and processes
	Reason string // when not: one clause for a person
}

// Resizer is an optional capability (FeatureResize): changing limits without a
// restart.
type Resizer interface {
	// Resize gives a sandbox other limits. On a running one they hold at once
	// and over later starts. Zero fields are unlimited.
	//
	// Codes: NotFound; Unsupported, naming the limit, when one that differs
	// cannot be changed in this state; Invalid when the sandbox uses more than
	// the limit allows already. Nothing has changed then.
	Resize(ctx context.Context, id string, limits Limits) error
}
