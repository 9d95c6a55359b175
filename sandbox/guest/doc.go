// Package guest is the host's side of the agent that runs as PID 1 in every
// sandbox, and the protocol between the two.
//
// The guest is the only thing that runs processes in a sandbox. A driver opens
// one byte stream to it (driver.Driver.Dial); [Connect] turns the stream into a
// [Conn], over which any number of processes, files and sockets are
// multiplexed. Processes belong to the guest, not to the connection: when the
// connection is lost they go on, and a new connection can [Conn.Attach] to
// them by id.
//
// Nothing that arrives from a guest is trusted: every length is bounded before
// it is used, every value is typed, and a guest that breaks the protocol loses
// its connection and nothing else.
//
// The protocol is specified in internal/wire/protocol.go. The program itself
// is package agent; program installs it on the host.
//
// # Errors
//
// All errors are of package fault. What the guest reports keeps its code, with
// the text made safe for a terminal. The end of the connection is ErrLost, and
// the end of a context Cancelled or Timeout.
package guest

import "github.com/sandgate/sandgate/sandbox/fault"

// ErrLost means that the connection to the guest ended while an operation was
// under way. The sandbox and its processes may well go on.
var ErrLost error = fault.New(fault.Unavailable, "connection to the sandbox was lost")
