package sandbox

import "sync"

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
