package sandbox

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// SessionStatus is where a session is in its life.
type SessionStatus string

// The session statuses.
const (
	SessionAttached SessionStatus = "attached" // a client controls it
	SessionDetached SessionStatus = "detached" // it goes on without one, until its time is up
	SessionEnded    SessionStatus = "ended"
)

// Session is the record of one interactive terminal in a sandbox. Its process
// belongs to the guest: it outlives its clients, the server, and a pause with
// memory. A session that nobody controls ends after the server's session keep.
type Session struct {
	ID        string // ses_…
	SandboxID string
	Name      string // unique among the live sessions of a sandbox
	Owner     string // principal that started it
	ProcessID string // in the guest
	Command   string // what runs, for a person; empty: the login shell
	User      string // in the sandbox; empty: its default
	Status    SessionStatus
	Recording string // id of the recording that is made of it; empty: none
	Exit      *guest.Exit
	Reason    string // why it ended, when no exit says so
	CreatedAt time.Time
	// DetachedAt is since when nobody controls it; zero while somebody does.
	DetachedAt time.Time
	EndedAt    time.Time
	// ActiveAt is when a byte last went in or out, as far as this server
	// knows; it is not recorded with every byte.
	ActiveAt time.Time
	// EndsAt is when a detached session will be ended; zero: not by the clock,
	// which stands still while its sandbox is paused. It is not recorded.
	EndsAt time.Time
	// Viewers are who is there now. They are not recorded.
	Viewers []Viewer
}

// ViewMode is what a viewer of a session may do.
type ViewMode string

// The view modes.
const (
	ViewControl ViewMode = "control" // types, and decides on the size
	ViewWatch   ViewMode = "watch"   // reads only
)

// ErrDetached is what Wait of a client returns, wrapped, when that client was
// detached and the session goes on without it.
var ErrDetached error = fault.New(fault.Cancelled, "detached; the session goes on")

// Viewer is one client of a session.
type Viewer struct {
	Principal string
	From      string // address the client came from
	Mode      ViewMode
	Since     time.Time
	Size      guest.Size
}

// SessionOpen says what OpenSession does with a name.
type SessionOpen string

// The ways to open a session.
const (
	OpenOrCreate SessionOpen = ""       // attach to the live session of that name, or start it
	OpenAttach   SessionOpen = "attach" // NotFound when there is none
	OpenCreate   SessionOpen = "create" // Exists when there is one
)

// SessionRequest says which session to open.
type SessionRequest struct {
	// Name of the session. Empty: a new one, under a short name of the
	// engine's choice ("s1", "s2", …).
	Name string
	Open SessionOpen
	Mode ViewMode // default ViewControl
	// Alone detaches every other client that controls the session first;
	// without it all of them share it.
	Alone bool
	// Command is what a session that is started runs; it must have a TTY.
	// The size of the TTY counts when attaching as well, and so does a user:
	// State with Field "user" when the session runs as another one.
	Command guest.Command
	From    string // address of the client, for the others to see
	// Record asks for a recording of a session that is started here, and
	// RecordInput for what is typed to be in it.
	Record, RecordInput bool
	// Notice, when not nil, is told a line at a time what the client should
	// know: who else is there, that it is recorded. It is called before
	// anything is drawn and, from any goroutine, until Wait returns. That the
	// sandbox has to come up first shows in its status.
	Notice func(line string)
}

// SessionProcess is one client's end of a session. Closing it detaches, and
// Hangup does the same: the session goes on. Wait returns when the session has
// ended, when this client was detached (ErrDetached), or when its sandbox was
// paused or lost, as Process.Wait does; before that it switches off what the
// session had switched on at the client's terminal. On a watching end Write, Resize and
// Signal do nothing.
type SessionProcess interface {
	Process
	// Session returns the record as it was when it was opened, and whether it
	// was started by that.
	Session() (s Session, created bool)
	// Kill ends the session for all: hangup, and after a grace period SIGKILL.
	Kill(ctx context.Context) error
}

var sessionNameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidateSessionName checks the name of a session. "root" is the user of that
// name where sessions are named behind a sandbox, and what looks like an id is
// one.
func ValidateSessionName(name string) error {
	switch {
	case !sessionNameRule.MatchString(name):
		return fault.InvalidField("name", "%q is not the name of a session: use 1 to 64 letters, digits, dots, hyphens and underscores, starting with a letter or a digit", clip(name, 64))
	case name == "root" || strings.HasPrefix(name, prefixSession+"_"):
		return fault.InvalidField("name", "a session cannot be called %q; choose another name", clip(name, 64))
	}
	return nil
}

// SessionStore keeps sessions. It works as Store does.
type SessionStore interface {
	// CreateSession records a session with its events. Exists with Field
	// "name" when a live session of the sandbox has the name.
	CreateSession(ctx context.Context, s Session, events ...Event) error
	UpdateSession(ctx context.Context, id string, change func(*Session) ([]Event, error)) (Session, error)
	Session(ctx context.Context, id string) (Session, error)
	// Sessions returns those that match, the newest first.
	Sessions(ctx context.Context, f SessionFilter) ([]Session, error)
}

// SessionFilter selects sessions. Empty fields do not restrict.
type SessionFilter struct {
	SandboxID string
	Name      string
	LiveOnly  bool // not ended
	Limit     int  // 0: all
}

// SessionOperations are what an Actor can do with sessions. name is the name
// of a live session of the sandbox, or the id of any; with an id ref may be
// empty.
type SessionOperations interface {
	// OpenSession attaches to a session or starts it. What the terminal shows
	// is drawn on out first, then follows what the session prints. It waits
	// for a sandbox that is being created and resumes a paused one.
	OpenSession(ctx context.Context, ref string, r SessionRequest, out guest.Output) (SessionProcess, error)
	// Sessions returns the live sessions of a sandbox, or of all sandboxes the
	// actor may see when ref is empty; with ended ones if all is true, the
	// newest first, at most a thousand.
	Sessions(ctx context.Context, ref string, all bool) ([]Session, error)
	Session(ctx context.Context, ref, name string) (Session, error)
	RenameSession(ctx context.Context, ref, name, to string) (Session, error)
	// DetachSession detaches all clients, KillSession ends the session.
	DetachSession(ctx context.Context, ref, name string) error
	KillSession(ctx context.Context, ref, name string) error
}
