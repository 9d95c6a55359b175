package driver

import (
	"context"
	"os"
)

// Network is what a driver is given to connect sandboxes that ask for it
// (Spec.Network) with: package netd, or a stand-in of a test. Everything a
// connected sandbox sends ends at the provider of the network, which decides;
// a driver makes no interface, address, route or rule of its own.
//
// Methods are safe for concurrent use and may be repeated. Errors are faults:
// Unavailable when the provider does not answer, Unsupported when this host
// cannot do it.
type Network interface {
	// Attach readies the network namespace of a sandbox for a new start and
	// returns it open; the caller closes it. The namespace holds a loopback
	// device and one more, has addresses and routes, and is the same over all
	// starts of the sandbox.
	Attach(ctx context.Context, id string) (*os.File, error)

	// Adopt connects a namespace that somebody else has made, such as that of
	// a container. It has to be done again after every start of it.
	Adopt(ctx context.Context, id string, namespace *os.File) error

	// Detach cuts a sandbox off and removes its namespace. It does nothing for
	// one that is not connected.
	Detach(ctx context.Context, id string) error

	// Resolver is the address of the name server inside, for resolv.conf.
	Resolver() string
}
