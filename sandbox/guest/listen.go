package guest

import "context"

// ListenRequest says where to listen inside a sandbox.
type ListenRequest struct {
	// Network is "tcp" or "unix".
	Network string
	// Address is host:port for tcp, where port 0 takes a free one and an empty
	// host or "*" means every address of the sandbox; a path for unix.
	// An empty address for unix makes a socket in a new directory that only
	// User can enter; both are removed with the listener.
	Address string
	// User, a name or number inside the sandbox, owns a unix socket and must
	// be allowed to make it there; empty: root.
	User string
	// Replace removes a unix socket that is in the way. Nothing else is ever
	// removed.
	Replace bool
}

// Listener is a listening socket inside a sandbox. Its methods are safe for
// concurrent use.
type Listener interface {
	// Address is where it listens: host:port with the port that was taken, or
	// the path.
	Address() string
	// Accept returns the next connection and who made it, host:port for tcp
	// and empty for unix. It fails with ErrLost when the connection to the
	// guest is lost: the socket is then gone.
	Accept(ctx context.Context) (st Stream, peer string, err error)
	// Close ends the listening; connections that were accepted go on.
	Close() error
}
