package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sandgate/sandgate/keys"
)

// headerTimeout bounds how long a client may take to send a request's header.
const headerTimeout = 30 * time.Second

// NewServer makes an http.Server for h with the limits every door of the API
// has. There is no write timeout: streams live as long as their commands. It
// speaks HTTP/1.1, and HTTP/2 to clients that begin with it.
func NewServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: 5 * time.Minute,
		MaxHeaderBytes: 64 << 10, Protocols: protocols,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
}

// ServeConn serves one connection whose peer has proved to be who: the
// "sandgate-api" subsystem of an SSH session, for one. It returns when the
// connection is over or ctx ends, and has closed rwc then.
//
// The end of what the peer sends is not the end of the peer. What it asked for
// in HTTP/1 before is answered in full, streams too, and then the connection
// is over. It is gone when ctx ends, or rwc can be read or written no more, and
// that cancels what it asked for. HTTP/2 needs both directions: there, the end
// of one is the end.
func ServeConn(ctx context.Context, h http.Handler, who keys.Principal, rwc io.ReadWriteCloser) error {
	there, gone := context.WithCancel(ctx)
	defer gone()
	// net/http needs deadlines to interrupt its own reads. Few byte streams
	// have them, pipes do; and of two pipes one can end before the other.
	in, fromPeer := net.Pipe()
	out, toPeer := net.Pipe()
	closePeer := sync.OnceFunc(func() { _ = rwc.Close() })
	var received, sent sync.WaitGroup
	received.Go(func() {
		defer fromPeer.Close()
		// A closed pipe is the server that wants no more; its answer may still
		// be on its way.
		if _, err := io.Copy(fromPeer, rwc); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			gone()
		}
	})
	sent.Go(func() {
		defer toPeer.Close()
		if _, err := io.Copy(rwc, toPeer); err != nil {
			gone()
		}
	})
	srv := NewServer(whileThere(there, h))
	srv.BaseContext = func(net.Listener) context.Context { return WithPrincipal(there, who) }
	stop := context.AfterFunc(there, func() {
		_ = srv.Close()
		closePeer()
	})
	defer stop()
	near := twoPipes{Conn: in, out: out}
	err := srv.Serve(newSingleListener(near))
	_ = near.Close() // the server may not have got to it
	sent.Wait()
	closePeer()
	received.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// whileThere has requests of HTTP/1 end with their peer. net/http ends them as
// soon as nothing more can be read, when the peer may still read.
func whileThere(there context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
			defer cancel()
			defer context.AfterFunc(there, cancel)()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// twoPipes is a connection that reads from one pipe and writes to another.
type twoPipes struct {
	net.Conn
	out net.Conn
}

func (c twoPipes) Write(b []byte) (int, error) { return c.out.Write(b) }

func (c twoPipes) Close() error { return errors.Join(c.Conn.Close(), c.out.Close()) }

func (c twoPipes) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c twoPipes) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

// singleListener accepts one connection, and then waits until that is closed.
type singleListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
	addr   net.Addr
}

func newSingleListener(c net.Conn) *singleListener {
	l := &singleListener{conns: make(chan net.Conn, 1), closed: make(chan struct{}), addr: c.LocalAddr()}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	l.conns <- &notifyConn{Conn: c, closed: l.close}
	return l
}

func (l *singleListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *singleListener) Close() error   { l.close(); return nil }
func (l *singleListener) Addr() net.Addr { return l.addr }

// notifyConn tells when it is closed.
type notifyConn struct {
	net.Conn
	closed func()
}

func (c *notifyConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
