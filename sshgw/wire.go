package sshgw

import (
	"bufio"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// farAway is the round-trip time beyond which the ciphers are not worth
// waiting for the client's offer: the wait costs one round trip, and from here
// on the window of a channel (2 MiB) limits throughput more than any cipher.
const farAway = 5 * time.Millisecond

// wire is a client's connection as the SSH library sees it. It has sent our
// identification line and seen the client's before the library starts, so that
// what is offered can depend on who asks.
type wire struct {
	net.Conn
	conn  *conn // whose it is
	r     *bufio.Reader
	in    atomic.Int64 // bytes received
	out   atomic.Int64 // bytes sent
	quick atomic.Bool  // acknowledge at once; while the client is not authenticated

	greeting []byte // our identification line; swallowed once when the library sends it again
	ident    string // the client's
	offer    *kexInit
}

func newWire(nc net.Conn, ident string) *wire {
	w := &wire{Conn: nc, greeting: []byte("SSH-2.0-" + ident + "\r\n")}
	w.r = bufio.NewReaderSize(quickConn{w}, peekBuffer)
	w.quick.Store(true)
	setNoDelay(nc)
	return w
}

// greet exchanges identification lines and, where that is worth it, waits for
// the client's KEXINIT. The caller bounds its time by closing the connection.
func (w *wire) greet(peekOffer bool) error {
	if _, err := w.Conn.Write(w.greeting); err != nil {
		return err
	}
	ident, n, err := peekIdent(w.r)
	if err != nil {
		return err
	}
	w.ident = ident
	if !peekOffer || !isOpenSSH(ident) || roundTrip(w.Conn) > farAway {
		return nil
	}
	// A client that does not send it in time is offered everything.
	_ = w.SetReadDeadline(time.Now().Add(time.Second))
	w.offer, _ = peekKexInit(w.r, n)
	return w.SetReadDeadline(time.Time{})
}

// Read reads what was looked at first. The library reads with a buffer of its
// own, so ours is given up once the handshake is over. One goroutine reads.
func (w *wire) Read(p []byte) (int, error) {
	if w.r != nil && w.r.Buffered() == 0 && !w.quick.Load() {
		w.r = nil
	}
	if w.r == nil {
		return quickConn{w}.Read(p)
	}
	return w.r.Read(p)
}

// Write writes, but for the identification line that was already sent.
func (w *wire) Write(p []byte) (int, error) {
	if w.greeting != nil {
		if string(p) != string(w.greeting) {
			return 0, errors.New("the library announced another version than was sent")
		}
		w.greeting = nil
		return len(p), nil
	}
	n, err := w.Conn.Write(p)
	w.out.Add(int64(n))
	return n, err
}

// quickConn reads from the connection itself and acknowledges what arrived
// right away while that is asked for: OpenSSH clients have Nagle's algorithm
// on during the handshake, and a delayed acknowledgement costs 40 ms each time.
type quickConn struct{ w *wire }

func (q quickConn) Read(p []byte) (int, error) {
	n, err := q.w.Conn.Read(p)
	if err := q.w.conn.arrived(q.w.in.Add(int64(n))); err != nil {
		return 0, err
	}
	if n > 0 && q.w.quick.Load() {
		acknowledge(q.w.Conn)
	}
	return n, err
}

func setNoDelay(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
		// The kernel notices a dead network where no session asks for signs of life.
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4})
	}
}
