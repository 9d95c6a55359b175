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
// peer has closed the connection or ctx ends, and has closed rwc then.
func ServeConn(ctx context.Context, h http.Handler, who keys.Principal, rwc io.ReadWriteCloser) error {
	// net/http needs deadlines to interrupt its own reads. Few byte streams
	// have them, pipes do.
	near, far := net.Pipe()
	var copies sync.WaitGroup
	closeAll := sync.OnceFunc(func() {
		_ = far.Close()
		_ = rwc.Close()
	})
	for _, c := range []struct {
		to   io.Writer
		from io.Reader
	}{{far, rwc}, {rwc, far}} {
		copies.Go(func() {
			defer closeAll()
			_, _ = io.Copy(c.to, c.from) // either end going away ends both
		})
	}
	srv := NewServer(h)
	srv.BaseContext = func(net.Listener) context.Context { return WithPrincipal(ctx, who) }
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	l := newSingleListener(near)
	err := srv.Serve(l)
	closeAll()
	copies.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

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
