package sshgw

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"
)

// conn is one client connection.
type conn struct {
	srv   *Server
	wire  *wire
	log   *slog.Logger
	began time.Time
	ctx   context.Context // ends with the connection; its cause says why
	end   context.CancelCauseFunc

	authenticated func() // ends what holds for strangers; may be called again

	// Written during the handshake, by its goroutine; fixed afterwards.
	refused   []string // fingerprints of keys that were refused
	bannered  bool     // the client was told why
	holder    string   // the principal it counts for
	overLimit bool     // its principal has too many connections

	mu       sync.Mutex
	closed   bool // no more goroutines: the connection has ended
	stopping bool // no more channels: the gateway is stopping
	watched  bool // keepalive runs
	where    *door
	sessions map[*session]struct{} // those that run something
	idle     chan struct{}         // while draining: closed when sessions is empty
	channels [2]int                // open channels by channelKind
	wg       sync.WaitGroup        // goroutines of channels
	over     chan struct{}         // closed when the library has let go of it
}

// serveConn serves one accepted connection to its end.
func (s *Server) serveConn(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	ctx, end := context.WithCancelCause(context.Background())
	c := &conn{
		srv: s, wire: newWire(nc, s.cfg.Ident), began: s.cfg.Now(), ctx: ctx, end: end,
		log:      s.cfg.Log.With("remote", nc.RemoteAddr().String()),
		sessions: make(map[*session]struct{}),
		over:     make(chan struct{}),
	}
	c.wire.conn = c
	c.wire.quick.Store(!s.slowACK)
	defer contain(c.log, "connection", nil)
	defer end(errGone)

	ticket := s.gate.enter(nc.RemoteAddr(), func() { _ = nc.Close() })
	if ticket == nil {
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write([]byte("Too many new connections from your address; wait a few seconds.\r\n"))
		if skipped, ok := s.failures.take(); ok {
			c.log.Info("ssh connection refused", "err", "too many new connections", "unlogged", skipped)
		}
		return
	}
	defer s.gate.leave(ticket)
	late := time.AfterFunc(s.cfg.Limits.Handshake, func() { _ = nc.Close() })
	defer late.Stop()
	c.authenticated = func() {
		late.Stop()
		s.gate.leave(ticket)
		c.wire.quick.Store(false)
	}
	if !s.add(c) {
		return
	}
	defer s.remove(c)
	defer close(c.over)
	if err := c.wire.greet(s.fastAES); err != nil {
		s.failed(nc, err)
		return
	}
	s.ssh.HandleConn(c.wire)
	c.finish()
}

// finish ends what the connection left behind and waits for it.
func (c *conn) finish() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(errGone)
	c.wg.Wait()
	if c.holder != "" {
		c.log.Info("ssh connection closed", "principal", c.holder, "lasted", c.srv.cfg.Now().Sub(c.began), "received", c.wire.in.Load())
	}
}

// enter counts a goroutine that finish waits for; false when it is too late.
func (c *conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

// drain ends the connection of a gateway that stops: clients with sessions are
// told and given until deadline ends.
func (c *conn) drain(deadline context.Context) {
	c.mu.Lock()
	c.stopping = true
	c.idle = make(chan struct{})
	busy := len(c.sessions) > 0
	if !busy {
		close(c.idle)
	}
	for s := range c.sessions {
		s.notify("sandgate: the gateway is stopping; this connection ends soon, what runs in the sandbox goes on")
	}
	c.mu.Unlock()
	if busy {
		select {
		case <-c.idle:
		case <-deadline.Done():
		}
		c.end(errStopping)
		// The last words are on their way; most clients leave by themselves.
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		select {
		case <-c.idle:
		case <-last.Done():
		}
		select {
		case <-c.over:
		case <-last.Done():
		}
	}
	c.end(errStopping)
	_ = c.wire.Close()
}
