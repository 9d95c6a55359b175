package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// sessionRecorder decides which sessions are recorded and makes the recordings.
// Engine.recorder is the one of this server; nil records nothing.
//
// A session that is recorded has an attachment to its process for its tap, from
// its first byte on and until its end. That one holds the process back as a
// client does, so a recording has no gaps for being slow, and it is attached to
// anew after a lost connection and after a pause, where it broke off. What the
// terminal shows when a client attaches is not in it: a recording is of the
// session, not of who looks.
type sessionRecorder interface {
	// begin is asked before a session that is started is put on record. Where
	// the session is to be recorded it sets s.Recording, tells r.Notice, and
	// returns the tap; nil is not to be recorded. An error refuses the session.
	// When the session does not come about, the tap's Ended says so.
	begin(ctx context.Context, s *Session, r *SessionRequest) (sessionTap, error)
	// goOn is asked for a session with a Recording that an earlier server has
	// started, and returns its tap and the offset of the output up to which the
	// recording has it. nil leaves the recording as it is.
	goOn(ctx context.Context, s *Session) (tap sessionTap, from int64, err error)
}

// sessionTap gets what happens in a session. Write and Skipped are called by
// one goroutine, in the order of the output; the others by any at any time, but
// nothing is called after Ended. What blocks holds the session back.
type sessionTap interface {
	// Write takes output. After an error it is not called again, and the
	// session goes on without being recorded; it is for the tap to log why.
	Write(b []byte) (int, error)
	// Skipped tells that n bytes of output are missing at this place.
	Skipped(n int64)
	// Resized tells the size of the terminal, first when the session starts.
	Resized(size guest.Size)
	// Input gets what is typed if WantsInput, which is asked once.
	WantsInput() bool
	Input(b []byte)
	// Ended is called once, when the end of the session is on record; exit is
	// nil when it ended without one. It is not called when the server stops:
	// goOn of the next one takes over.
	Ended(exit *guest.Exit)
}

// tapOutput is where the output of a recorded session goes, besides its
// clients. touch is called for every byte.
func tapOutput(tap sessionTap, touch func()) guest.Output {
	return guest.Output{Stdout: touchWriter{tap, touch}, Skipped: tap.Skipped, Hold: guest.HoldAlways}
}
