package sandbox

import (
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Transitions is the state machine: which status may follow which. A move that
// is not in the table is an error that names both.
var Transitions = map[Status][]Status{
	Creating:   {Idle, Failed, Stopping, Terminated},
	Idle:       {Running, Paused, Suspended, Stopping, Terminated, Failed},
	Running:    {Idle, Paused, Suspended, Stopping, Terminated, Failed},
	Paused:     {Idle, Stopping, Terminated, Failed},
	Suspended:  {Idle, Stopping, Terminated, Failed},
	Stopping:   {Deleted, Terminated, Failed},
	Failed:     {Stopping, Deleted},
	Terminated: {},
	Deleted:    {},
}

// moveTo changes the status of s, or says why it cannot.
func (s *Sandbox) moveTo(next Status, reason string) error {
	if s.Status != next && !slices.Contains(Transitions[s.Status], next) {
		return fault.New(fault.State, "sandbox %s is %s and cannot become %s", s.ID, s.Status, next).About("sandbox")
	}
	if s.Status == Paused && next != Paused {
		s.PausedAt, s.TerminatesAt, s.Memory = time.Time{}, time.Time{}, false
	}
	s.Status = next
	s.StatusReason = reason
	return nil
}

// notUp explains why nothing can be done in a sandbox of this status.
func (s *Sandbox) notUp() *fault.Error {
	msg := "sandbox " + s.ID + " is " + string(s.Status)
	if s.StatusReason != "" {
		msg += " (" + s.StatusReason + ")"
	}
	switch s.Status {
	case Paused:
		msg += "; bring it up again with: resume " + s.ID
	case Failed:
		msg += "; remove it with: delete " + s.ID
	case Terminated, Deleted:
		msg += "; make a new one with: create"
	}
	return fault.New(fault.State, "%s", msg).About("sandbox")
}
