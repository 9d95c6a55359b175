package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// SocketOperations are the sockets inside a sandbox that clients of an Actor
// use. (Dial belongs here too.)
type SocketOperations interface {
	// Listen listens on a socket inside the sandbox and hands out what
	// connects to it. The caller closes the listener. Bytes of its connections
	// count as activity.
	Listen(ctx context.Context, ref string, r guest.ListenRequest) (guest.Listener, error)
}
