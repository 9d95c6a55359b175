// Package wire is the protocol between the host and the guest of a sandbox.
// This file is its specification; the rest of the package is the code that
// both ends share.
//
// # Layers
//
//  1. One byte stream, opened by a driver: the stdin and stdout of a relay
//     process inside the sandbox, which PID 1 has taken over.
//
//  2. A handshake of one line in each direction (handshake.go). The host
//     speaks first and sends nothing more until the guest has answered:
//
//     host:  sandgate-guest <oldest> <newest> <window>\n
//     guest: {"protocol":1,"version":"v1.2.3","bootId":"…","window":1048576}\n
//
//     The host names the range of protocol versions it speaks, the guest
//     picks the newest that both know. A guest that knows none of them
//     answers {"error":"…","protocol":<its newest>} and ends the stream.
//     The window is the flow-control window of one multiplexed stream; the
//     smaller of both wishes is used by both.
//
//  3. yamux. The host is its client and opens every stream; a guest that
//     opens one, or sends a yamux ping, breaks the protocol. Keepalive is
//     off: a paused sandbox is silent and well.
//
//  4. One stream per operation: the host sends a [Request], the guest sends a
//     [Response]; both are a u32 length (big endian) and that much JSON. For
//     some operations frames follow, in one or both directions.
//
// # Frames
//
// A frame is its kind (one byte), the length of its payload (u32, big endian)
// and the payload. All data travels in frames, never bare, because the end of
// a yamux stream cannot carry a meaning: a half-closed stream and a lost
// connection look the same to a reader. So KindEOF is the only end of data,
// and the end of a stream only ever says that the peer has left.
//
//	operation     host to guest             guest to host
//	start,attach  data, eof, collected      stdout, stderr, gap, exit
//	dial,accept   data, eof                 data, eof
//	listen        nothing                   connection, result
//	write,unpack  data, eof                 result
//	read,pack     nothing                   data, result
//	list-files    nothing                   entries, result
//	others        nothing                   nothing
//
// On start and attach streams, data is standard input and eof ends it; the
// end of the stream detaches and leaves standard input as it is. After exit
// the host answers with collected when somebody has taken the exit over;
// without it the guest keeps the exit for a later attach. A process that was
// started with keep stays all the same, with its exit and its latest output,
// until forget: the host says so when it has written the exit down, so that
// its own death in between loses nothing. Everything that must not wait behind a standard input that nobody reads (resize, signal,
// close-output, hangup, detach) is an operation of its own.
//
// # Files
//
// The operations on files (file.go) work inside the sandbox, as root or as the
// user named. A relative path resolves against the workspace, ".." is resolved
// before anything is looked up, and paths are bytes (Path). Nothing but regular
// files is ever opened: a pipe or a device would hold its opener, or do things.
// The end of the stream ends an operation that is under way.
//
// Archives are made, compressed and opened by the guest and never by the host:
// what a stranger sends and what a sandbox contains is read inside of that
// sandbox, within its limits of memory, CPU and disk. A tar is a stream both
// ways. A zip has its directory at its end; one that comes in is kept in a
// nameless file on the sandbox's disk until it has arrived. An archive that is
// unpacked leaves nothing outside of its directory: an entry that is absolute,
// contains "..", or leads through a link out of the directory ends it with an
// error that names the entry, as do the bounds of Unpack.
//
// # Sockets
//
// A listen stream stays open: a frame announces each connection with a number,
// and an accept operation takes it over. The guest accepts no more than
// MaxPending that nobody has taken over; the others wait in the kernel. The end
// of the stream ends the listening and the connections that were not taken
// over, and so does the end of the host's connection; the guest ends it with a
// result when it cannot listen any more.
//
// # Trust
//
// The host trusts nothing that comes from a guest. It bounds every length
// before it allocates, checks every value, and ends the connection when one is
// out of bounds. The guest bounds what it reads as well, so that a defect of
// the host cannot exhaust a sandbox.
package wire

import "encoding/json"

// Versions of the protocol that this build speaks. A guest stays as it is for
// the life of its sandbox while the host is upgraded around it, so the host
// keeps speaking the versions of every guest that may still run.
//
// Version 2 added the operations of file.go, and to write and read the fields
// that say so. Version 3 added listen and accept, the builtin of a command, and
// what Started and Info say of a terminal.
const (
	OldestVersion  = 1
	NewestVersion  = 3
	FilesVersion   = 2
	ListenVersion  = 3
	BuiltinVersion = 3
)

// Bounds. Both ends hold to them when they send and check them when they read.
const (
	// MaxLine bounds a handshake line, newline included.
	MaxLine = 1 << 10
	// MaxRequest and MaxResponse bound the JSON of one message.
	MaxRequest  = 1 << 20
	MaxResponse = 4 << 20
	// MaxPayload bounds the payload of a frame that carries bytes, and
	// MaxControl that of one that carries a number or an exit, and MaxResult
	// that of a result, whose texts JSON may make six times as long.
	MaxPayload = 256 << 10
	MaxControl = 4 << 10
	MaxResult  = 16 << 10
	// Window is the flow-control window that both ends ask for, and MinWindow
	// the smallest they accept (yamux knows none smaller).
	Window    = 1 << 20
	MinWindow = 256 << 10
	// MaxStreams bounds the operations under way on one connection.
	MaxStreams = 4096

	MaxID       = 128       // bytes of a process id
	MaxLabel    = 256       // bytes of a label
	MaxTitle    = 256       // bytes of a title
	MaxText     = 1 << 10   // bytes of an error message
	MaxPath     = 4096      // bytes of a path, the terminating zero included
	MaxEnv      = 4096      // entries of an environment
	MaxArgs     = 16384     // arguments of a command
	MaxProcess  = 4096      // processes a guest keeps, finished ones included
	MaxAddress  = 512       // bytes of an address to dial or to listen on
	MaxSocket   = 107       // bytes of the path of a unix socket
	MaxListen   = 256       // listening sockets of one connection
	MaxPending  = 64        // connections of one listening socket that nobody has taken over
	MaxModes    = 1 << 10   // bytes of the sequences that restore the modes of a terminal
	MaxUserName = 256       // bytes of a user's name
	MaxOffset   = 1 << 60   // an output offset nobody reaches
	MaxFileSize = 1 << 60   // likewise a file size
	RingSize    = 256 << 10 // bytes of recent output a guest keeps per process
)

// Op names an operation.
type Op string

// The operations, with the types of their arguments and results.
const (
	OpPing        Op = "ping"         // nothing → nothing
	OpStart       Op = "start"        // guest.Command → Started, then frames
	OpAttach      Op = "attach"       // Attach → Started, then frames
	OpDetach      Op = "detach"       // Detach → nothing
	OpList        Op = "list"         // nothing → []guest.Info
	OpSignal      Op = "signal"       // Signal → nothing
	OpResize      Op = "resize"       // Resize → nothing
	OpCloseOutput Op = "close-output" // Target → nothing
	OpHangup      Op = "hangup"       // Target → nothing
	OpForget      Op = "forget"       // Target → nothing
	OpWrite       Op = "write"        // Write → nothing, then frames
	OpRead        Op = "read"         // Read → File, then frames
	OpDial        Op = "dial"         // Dial → Dialed, then frames
	OpListen      Op = "listen"       // Listen → Listening, then frames
	OpAccept      Op = "accept"       // Accept → Dialed, then frames
	OpShutdown    Op = "shutdown"     // nothing → nothing, then everything ends
)

// Kind is the kind of a frame.
type Kind byte

// Frames that carry bytes.
const (
	KindData   Kind = 1 // standard input, file content, bytes of a socket
	KindStdout Kind = 2
	KindStderr Kind = 3
)

// Frames that carry a fact.
const (
	KindEOF       Kind = 16 // no more data in this direction; empty
	KindCollected Kind = 17 // the exit has been taken over; empty
	KindGap       Kind = 18 // u64: output goes on at this offset, what lies between is lost
	KindExit      Kind = 19 // JSON Exit: no more frames follow
	KindResult    Kind = 20 // JSON Response: how the transfer ended, no more frames follow
	KindEntries   Kind = 21 // JSON array of at most MaxEntries Entry
	KindConnected Kind = 22 // JSON Connected: somebody has connected to a listening socket
)

// Request opens an operation.
type Request struct {
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Response answers a request: with an error, or with a result.
type Response struct {
	Error  *Error          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Error is a fault.Error on the wire.
type Error struct {
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Started answers start and attach.
type Started struct {
	// PID is 0 when nothing was started because the command does not exist;
	// the output then says so and the exit code is 127 or 126.
	PID int  `json:"pid"`
	TTY bool `json:"tty,omitempty"`
	// Attachment names this attachment for detach.
	Attachment uint64 `json:"attachment"`
	// Offset is the absolute offset of the first byte of output that follows.
	Offset int64 `json:"offset"`

	// The rest is of version 3, and of a terminal. Modes are the control
	// sequences that make of a new one what the output before Offset has made of
	// this one.
	Modes string `json:"modes,omitempty"`
	Rows  uint16 `json:"rows,omitempty"`
	Cols  uint16 `json:"cols,omitempty"`
}

// Attach asks for the output of a process from an absolute offset on. -1 means
// all that the guest holds. An offset that the guest no longer holds, or does
// not hold yet, is moved to the nearest that it does.
type Attach struct {
	ID   string `json:"id"`
	From int64  `json:"from"`
	Hold string `json:"hold,omitempty"` // see guest.Hold; unknown to a guest before version 3
}

// Detach ends an attachment of this connection, or a socket, even when what the
// host has sent to it is stuck: the end of its stream would wait behind that.
type Detach struct {
	Attachment uint64 `json:"attachment"`
}

// Target names a process.
type Target struct {
	ID string `json:"id"`
}

// Signal sends a signal, named without "SIG": to the process group, or with
// Session to every process of the session that the process leads.
type Signal struct {
	ID      string `json:"id"`
	Signal  string `json:"signal"`
	Session bool   `json:"session,omitempty"`
}

// Resize sets a terminal's size; 0 leaves a dimension as it is.
type Resize struct {
	ID   string `json:"id"`
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Exit says how a process ended. Offset is the length of all its output.
type Exit struct {
	Code       int    `json:"code"`
	Signal     string `json:"signal,omitempty"`
	CoreDumped bool   `json:"coreDumped,omitempty"`
	Offset     int64  `json:"offset"`
}

// Write announces a file. A host of version 1 sends the path and the permission
// bits alone, and directories that are missing are made for it.
type Write struct {
	Path Path   `json:"path"`
	Mode uint32 `json:"mode"`

	// The rest is of version 2. With Options the guest heeds it and answers
	// with Made; a Mode of 0 then keeps that of a file that is replaced.
	Options bool   `json:"options,omitempty"`
	User    string `json:"user,omitempty"`
	Parents bool   `json:"parents,omitempty"` // make directories that are missing
	Append  bool   `json:"append,omitempty"`  // to the end of the file, at once
	Size    *int64 `json:"size,omitempty"`    // what the content has to have
}

// Read asks for a file.
type Read struct {
	Path Path `json:"path"`

	// The rest is of version 2. Length 0 is to the end.
	User   string `json:"user,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
}

// File describes the file that follows. Size is what the file had when it was
// opened; the data may be shorter or longer.
type File struct {
	Size     int64  `json:"size"`
	Mode     uint32 `json:"mode"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds since 1970; since version 2
}

// Dial asks for a socket inside the sandbox; Network is "tcp" or "unix".
type Dial struct {
	Network string `json:"network"`
	Address string `json:"address"`
}

// Dialed answers dial. Attachment names the socket for detach.
type Dialed struct {
	Attachment uint64 `json:"attachment"`
}

// Listen asks for a listening socket inside the sandbox, as guest.ListenRequest
// does.
type Listen struct {
	Network string `json:"network"`
	Address string `json:"address,omitempty"`
	User    string `json:"user,omitempty"`
	Replace bool   `json:"replace,omitempty"`
}

// Listening answers listen. Listener names the socket for accept.
type Listening struct {
	Address  string `json:"address"`
	Listener uint64 `json:"listener"`
}

// Connected announces a connection, by a number that its listener gives once.
// Peer is host:port for tcp.
type Connected struct {
	Number uint64 `json:"number"`
	Peer   string `json:"peer,omitempty"`
}

// Accept takes over a connection that was announced.
type Accept struct {
	Listener uint64 `json:"listener"`
	Number   uint64 `json:"number"`
}
