package sandbox

import (
	"context"
	"sync"
	"time"
)

// Subscription is a live view of events, in order and without a gap. It never
// holds the engine up: a reader that falls too far behind is told how many
// events it missed.
type Subscription struct {
	events chan Notice
	stop   func()
	once   sync.Once
}

// Notice is one thing a Subscription delivers.
type Notice struct {
	Event  Event
	Missed int // events that were dropped before this one; Event is the next one after them
}

// Events is closed when the subscription ends: its context, Close, or the
// engine's Close.
func (s *Subscription) Events() <-chan Notice { return s.events }

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() { s.once.Do(s.stop) }

// EventFilter selects events. Empty fields do not restrict.
type EventFilter struct {
	SandboxID string // of one sandbox; empty: of all
	Owner     string // of the sandboxes of one owner
	Seen      *Visibility
	Types     []EventType
	Since     time.Time // not before
	Until     time.Time // before
	// After and Before bound, exclusively, the Seq of those of one sandbox and
	// the Position of those of all.
	After, Before int64
	Asc           bool // the oldest first; default: the newest
	Limit         int  // 0: all
}

// EventStore reads events. They are written together with what they tell of.
type EventStore interface {
	// Events returns those of one sandbox in order, after the given Seq.
	Events(ctx context.Context, sandboxID string, afterSeq int64, limit int) ([]Event, error)
	// EventHistory returns those that match, in the order of Seq for one
	// sandbox and of Position for all.
	EventHistory(ctx context.Context, f EventFilter) ([]Event, error)
	// EventCount is how many match; Limit does not matter.
	EventCount(ctx context.Context, f EventFilter) (int, error)
	// LastPosition is the Position of the newest event; 0 when there is none.
	// An event that is visible has all before it visible, too.
	LastPosition(ctx context.Context) (int64, error)
	// Written returns a channel that is closed when something is written
	// after this call; it may be closed for less than an event.
	Written() <-chan struct{}
}

// EventQuery says which events are asked for. Empty fields do not restrict.
type EventQuery struct {
	Types []EventType
	Since time.Time // not before
	Until time.Time // before
	// After and Before bound, exclusively, the Seq of the events of one
	// sandbox, and the Position when they are of all.
	After, Before int64
	Asc           bool // the oldest first; default: the newest
	Limit         int  // default 50, at most 100
}

// EventOperations are what an Actor can do with events, besides
// LifecycleOperations.Subscribe.
type EventOperations interface {
	// EventHistory returns events of one sandbox, or of all the actor may see
	// when ref is empty.
	EventHistory(ctx context.Context, ref string, q EventQuery) ([]Event, error)
}
