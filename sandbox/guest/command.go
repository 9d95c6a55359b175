package guest

import (
	"io"
	"time"
)

// Command describes one process to start inside a sandbox.
//
// What runs depends on Args and Script: Args is run as it is; Script is handed
// to the user's login shell with -c, as sshd does with a remote command; with
// neither, the user's login shell is started as a login shell.
type Command struct {
	// ID names the process for Attach, Signal and List; unique within the
	// sandbox, chosen by the host. Starting an id that exists is an error.
	ID string `json:"id"`
	// Label is free text that List returns (a session's name, a door).
	Label string `json:"label,omitempty"`

	Args   []string `json:"args,omitempty"`
	Script string   `json:"script,omitempty"`
	// Builtin runs a program of the guest's own instead, with Args as its
	// arguments: BuiltinSFTP or BuiltinSCP. It has no terminal.
	Builtin string `json:"builtin,omitempty"`

	// Env is added to the base environment of the user ("KEY=value"; later
	// entries win). HOME, USER, LOGNAME, SHELL and PATH are set by the guest.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; relative paths resolve against the
	// workspace, and empty means the workspace. If the directory does not
	// exist the start fails and says so.
	Dir string `json:"dir,omitempty"`
	// User is a name or numeric id inside the sandbox; empty means root.
	User string `json:"user,omitempty"`
	// TTY asks for a pseudo terminal; nil means pipes. With a terminal there
	// is no separate standard error.
	TTY *TTY `json:"tty,omitempty"`
	// NoStdin gives the process an empty standard input (/dev/null).
	NoStdin bool `json:"noStdin,omitempty"`
	// Keep makes the guest keep the process after its end, with its exit and
	// its latest output, until Conn.Forget, although somebody has collected
	// the exit. The guest bounds how many it keeps so, and for how long.
	Keep bool `json:"keep,omitempty"`
}

// The programs that the guest has of its own.
const (
	BuiltinSFTP = "sftp-server" // the sftp subsystem
	BuiltinSCP  = "scp"         // the far end of scp -O: -t or -f, and paths
)

// TTY describes a pseudo terminal.
type TTY struct {
	Term string `json:"term,omitempty"` // value of TERM
	Size Size   `json:"size"`
	// Modes are the encoded terminal modes of RFC 4254 section 8, opcode to
	// value; unknown opcodes are ignored.
	Modes map[uint8]uint32 `json:"modes,omitempty"`
}

// Size is a terminal size in characters. A zero dimension means unchanged.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Output says where a process's output goes. A nil writer discards. The
// writers are called from one goroutine, in the order the guest saw the bytes;
// a writer that blocks holds back this process alone. After a writer has
// returned an error it is not called again and its stream is discarded.
type Output struct {
	Stdout io.Writer
	Stderr io.Writer
	// Hold says whether a slow writer holds the process back. It is heeded by
	// Attach; what Start attaches is the oldest.
	Hold Hold
	// Skipped, when not nil, is called as the writers are, with how many
	// bytes of output the guest no longer held before those that come next.
	Skipped func(n int64)
}

// Hold says whether a process waits for one who reads its output, when several
// do. Who does not hold it back misses what they are too slow for, and is told.
type Hold string

// The ways to hold a process back.
const (
	HoldOldest Hold = ""       // the oldest attachment of this kind does
	HoldNever  Hold = "never"  // who watches
	HoldAlways Hold = "always" // who must not miss anything, besides the others
)

// Exit is how a process ended: by Code, or by Signal when that is not empty.
type Exit struct {
	Code       int    `json:"code"`
	Signal     string `json:"signal,omitempty"` // without "SIG": "TERM", "KILL", "SEGV"
	CoreDumped bool   `json:"coreDumped,omitempty"`
}

// Status is the shell's view of the exit: the code, or 128 plus the number of
// the signal.
func (e Exit) Status() int {
	if e.Signal == "" {
		return e.Code
	}
	return 128 + signalNumber(e.Signal)
}

// Info is what List tells about a process that the guest keeps.
type Info struct {
	ID       string    `json:"id"`
	Label    string    `json:"label,omitempty"`
	PID      int       `json:"pid"`
	TTY      bool      `json:"tty,omitempty"`
	Attached int       `json:"attached"` // streams reading its output now
	Started  time.Time `json:"started"`
	Exited   bool      `json:"exited,omitempty"`
	Exit     Exit      `json:"exit"`
	Title    string    `json:"title,omitempty"` // what it runs, for a person
	Size     Size      `json:"size,omitzero"`   // of the terminal, as far as it is known
}

// Hello is what the guest says about itself and the sandbox when a connection
// opens.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	BootID   string `json:"bootId"` // changes when PID 1 was started anew
}
