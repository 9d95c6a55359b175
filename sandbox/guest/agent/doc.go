// Package agent is the guest: the program that runs as PID 1 in every sandbox
// and starts, watches and ends all processes of its users.
//
// [Main] is the program, with the sub-commands init (PID 1) and relay (the
// handle of one connection). [Agent] is the same as a library: a process that
// is not PID 1 can serve the protocol on any stream, with real processes of
// its own. Tests and the fake driver do that.
//
// # What belongs to whom
//
// A process belongs to the Agent, never to a connection. A connection has
// attachments; an attachment reads the output of a process and feeds its
// standard input. When a connection ends its attachments end, and nothing else
// does. Every process keeps its recent output in a ring of bytes, which
// attachments read at their own position: the oldest attachment holds the
// process back when it is slow, the others skip what they were too slow for
// and are told so, and with no attachment at all the ring forgets its oldest
// bytes, so that no process ever waits for a client that is gone.
//
// # As PID 1
//
// PID 1 reaps every orphan, handles all signals (so that none that root of the
// sandbox sends ends it, SIGKILL in gVisor excepted), and listens on a Unix
// socket in /dev that only root of the sandbox can reach. When somebody removes
// or replaces the socket, PID 1 binds it anew. The protocol version and all
// messages are specified in package wire.
package agent
