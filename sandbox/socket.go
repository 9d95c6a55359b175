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

var _ SocketOperations = (*Actor)(nil)

// Listen listens on a socket inside the sandbox.
func (a *Actor) Listen(ctx context.Context, ref string, r guest.ListenRequest) (guest.Listener, error) {
	s, err := a.ready(ctx, ref, "Listen")
	if err != nil {
		return nil, err
	}
	conn, err := a.e.conns.get(ctx, s.ID)
	if err != nil {
		return nil, a.e.explain(ctx, s.ID, err)
	}
	l, err := conn.Listen(ctx, r)
	if err != nil {
		return nil, a.e.explain(ctx, s.ID, err)
	}
	touch := a.e.toucher(s.ID)
	touch()
	return &activeListener{Listener: l, touch: touch}, nil
}

// activeListener hands out connections whose bytes touch their sandbox.
type activeListener struct {
	guest.Listener
	touch func()
}

// Accept implements guest.Listener.
func (l *activeListener) Accept(ctx context.Context) (guest.Stream, string, error) {
	st, peer, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, "", err
	}
	l.touch()
	return &activeStream{Stream: st, touch: l.touch}, peer, nil
}
