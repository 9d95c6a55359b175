package sandbox

import (
	"context"
	"io"
	"time"
)

// RecordPolicy says which sessions are recorded.
type RecordPolicy string

// The policies.
const (
	RecordNever  RecordPolicy = "never"
	RecordOptIn  RecordPolicy = "opt-in" // those that ask for it; the default
	RecordAlways RecordPolicy = "always"
)

// Valid reports whether p is one of the policies.
func (p RecordPolicy) Valid() bool {
	return p == RecordNever || p == RecordOptIn || p == RecordAlways
}

// Recording is the record of what one session showed, as an asciicast file.
type Recording struct {
	ID        string // rec_…
	SandboxID string
	SessionID string
	Session   string // its name when the recording began
	Owner     string // principal that started the session
	Command   string
	Input     bool // what was typed is in it
	Bytes     int64
	Duration  time.Duration
	// Complete is false while it is made, and for one that was cut short, by a
	// crash of the server or a full disk; what there is can be played all the
	// same.
	Complete  bool
	CreatedAt time.Time
	EndedAt   time.Time // zero while it is made
}

// RecordingFormat is a form in which a recording can be had.
type RecordingFormat string

// The formats.
const (
	AsciicastV2 RecordingFormat = "asciicast-v2" // as it is kept
	AsciicastV3 RecordingFormat = "asciicast-v3"
	PlainText   RecordingFormat = "text" // the output without control sequences
)

// RecordingStore keeps recordings. It works as Store does.
type RecordingStore interface {
	CreateRecording(ctx context.Context, r Recording) error
	UpdateRecording(ctx context.Context, id string, change func(*Recording) error) (Recording, error)
	Recording(ctx context.Context, id string) (Recording, error)
	// Recordings returns those that match, the newest first, and how many
	// match in all.
	Recordings(ctx context.Context, f RecordingFilter) ([]Recording, int, error)
	DeleteRecording(ctx context.Context, id string) error
}

// RecordingFilter selects recordings. Empty fields do not restrict.
type RecordingFilter struct {
	SandboxID string
	Owner     string // of the sandbox
	Seen      *Visibility
	Open      bool // only those that are being made
	Before    time.Time
	Limit     int // 0: all
	Offset    int
}

// RecordingOperations are what an Actor can do with recordings: those of
// sandboxes they may see, also when the sandbox has ended. Only admins delete.
type RecordingOperations interface {
	Recordings(ctx context.Context, ref string, limit, offset int) ([]Recording, int, error)
	Recording(ctx context.Context, id string) (Recording, error)
	// ReadRecording writes the recording to w; with follow it goes on until
	// one that is being made has ended.
	ReadRecording(ctx context.Context, id string, format RecordingFormat, follow bool, w io.Writer) error
	DeleteRecording(ctx context.Context, id string) error
}
