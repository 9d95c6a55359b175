package guest

import (
	"context"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// errListenerClosed is the end of a listener that its owner has closed.
var errListenerClosed error = fault.Wrap(net.ErrClosed, fault.Cancelled, "the listener was closed")

// Listen listens on a socket inside the sandbox. ctx bounds the opening. The
// socket is gone when the connection to the guest is.
//
// Codes: Invalid for another network and a malformed address, Busy when the
// address is in use, Unavailable when the sandbox has no such address, Denied
// when the user may not, NotFound when the directory of a unix socket is
// missing, Exhausted when too much is listened on, Unsupported by an older
// guest.
func (c *Conn) Listen(ctx context.Context, r ListenRequest) (Listener, error) {
	if c.hello.Protocol < wire.ListenVersion {
		return nil, errOlderGuest
	}
	if !utf8.ValidString(r.Address) { // which JSON would make another address of
		return nil, fault.InvalidField("address", "is not UTF-8")
	}
	o, err := c.open(ctx, wire.OpListen, wire.Listen(r))
	if err != nil {
		return nil, err
	}
	l := &listener{
		op: o, network: r.Network,
		waiting: make(chan wire.Connected, wire.MaxPending),
		closed:  make(chan struct{}), over: make(chan struct{}),
	}
	if err := o.answer(ctx, &l.listening); err != nil {
		o.leave()
		return nil, err
	}
	if err := checkListening(r.Network, &l.listening); err != nil {
		return nil, c.violated(err)
	}
	go l.run() // ends with the stream
	return l, nil
}

// listener is a socket that the guest listens on.
type listener struct {
	op        *operation
	network   string
	listening wire.Listening

	waiting chan wire.Connected // announced and not yet asked for

	close  sync.Once
	closed chan struct{}
	over   chan struct{} // closed when err is set
	err    error
}

func (l *listener) Address() string { return l.listening.Address }

// run takes the announcements. The guest keeps no more than fit in.
func (l *listener) run() {
	defer close(l.over)
	defer l.op.leave()
	frames := wire.NewFrameReader(l.op)
	for {
		connected, err := l.next(frames)
		if err == nil {
			select {
			case l.waiting <- connected:
				continue
			default:
				err = wire.Violation("more than %d connections wait", wire.MaxPending)
			}
		}
		select {
		case <-l.closed:
			l.err = errListenerClosed
		default:
			if f, ok := err.(*fault.Error); ok { // the guest's own words
				l.err = f
				return
			}
			l.err = l.op.failed(context.Background(), err)
		}
		return
	}
}

// next reads the next announcement, or the reason why there are no more.
func (l *listener) next(frames *wire.FrameReader) (connected wire.Connected, err error) {
	kind, _, err := frames.Next()
	if err != nil {
		return connected, err
	}
	switch kind {
	case wire.KindConnected:
		if err = frames.JSON(&connected); err == nil {
			err = checkPeer(l.network, &connected)
		}
		return connected, err
	case wire.KindResult:
		var end wire.Response
		if err := frames.JSON(&end); err != nil {
			return connected, err
		}
		if err = l.op.conn.unpack(end, nil); err == nil {
			err = wire.Violation("a listener that ended without a reason")
		}
		return connected, err
	}
	return connected, wire.Violation("frame of kind %d of a listener", kind)
}

// Accept returns the next connection.
func (l *listener) Accept(ctx context.Context) (Stream, string, error) {
	for {
		select {
		case <-l.closed: // comes before whoever waits
			return nil, "", errListenerClosed
		default:
		}
		select {
		case <-l.closed:
			return nil, "", errListenerClosed
		case <-l.over:
			return nil, "", l.err
		case <-ctx.Done():
			return nil, "", fault.From(ctx.Err())
		case connected := <-l.waiting:
			args := wire.Accept{Listener: l.listening.Listener, Number: connected.Number}
			st, err := l.op.conn.socket(ctx, wire.OpAccept, args)
			if fault.Is(err, fault.NotFound) { // it did not wait for us
				continue
			}
			return st, connected.Peer, err
		}
	}
}

// Close ends the listening.
func (l *listener) Close() error {
	l.close.Do(func() {
		close(l.closed)
		l.op.leave()
	})
	return nil
}

// checkListening checks where the guest says that it listens.
func checkListening(network string, l *wire.Listening) error {
	if network == "tcp" {
		at, err := netip.ParseAddrPort(l.Address)
		if err != nil || at.Port() == 0 {
			return wire.Violation("listening on %q", wire.Printable(l.Address, 128))
		}
		l.Address = plain(at)
		return nil
	}
	if len(l.Address) > wire.MaxSocket || !path.IsAbs(l.Address) || !utf8.ValidString(l.Address) || strings.ContainsFunc(l.Address, unicode.IsControl) {
		return wire.Violation("listening on the path %q", wire.Printable(l.Address, 128))
	}
	return nil
}

// checkPeer checks who has connected, as the guest says.
func checkPeer(network string, c *wire.Connected) error {
	if network != "tcp" {
		c.Peer = ""
		return nil
	}
	peer, err := netip.ParseAddrPort(c.Peer)
	if err != nil {
		return wire.Violation("a connection from %q", wire.Printable(c.Peer, 128))
	}
	c.Peer = plain(peer)
	return nil
}

// plain is an address without its zone, which may be any text.
func plain(at netip.AddrPort) string {
	return netip.AddrPortFrom(at.Addr().WithZone("").Unmap(), at.Port()).String()
}
