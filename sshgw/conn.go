package sshgw

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
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

	extend        func(time.Duration) // gives the handshake more time
	authenticated func()              // ends what holds for strangers; may be called again

	// Written during the handshake, by its goroutine; fixed afterwards.
	refused   []string // fingerprints of keys that were refused
	offer     offer    // the last one
	bannered  bool     // the client was told why
	certified bool     // and why its certificate was
	holder    string   // the principal it counts for
	overLimit bool     // its principal has too many connections

	jump *jump // set where the connection came through another one

	id      string // names the connection in the audit log
	remote  string // address of the client
	flow    inflow
	known   atomic.Bool  // the client is authenticated
	late    atomic.Bool  // it took too long for that, or had to make room
	flooded atomic.Bool  // it sent too much before that
	held    atomic.Int64 // of flow, when it was last looked at
	checked int64        // bytes that had been received then; of the reader
	asked   atomic.Int64 // channels that are open or asked for
	told    atomic.Int64 // channels that were numbered for the audit log
	turned  string       // why the last key was refused; written as those above

	requests  requests  // global ones that wait for their answer
	listeners listeners // sockets in the sandbox that belong to the client

	mu        sync.Mutex
	closed    bool // no more goroutines: the connection has ended
	stopping  bool // no more channels: the gateway is stopping
	watched   bool // keepalive runs
	joining   bool // the one session of somebody who joins was opened
	announced bool // the client was told the host keys
	where     *door
	who       identity              // for the audit log
	visits    visits                // what was done in which sandbox
	sessions  map[*session]struct{} // those that run something
	notices   []string              // for the next session to tell
	jumps     int                   // connections that came through this one
	idle      chan struct{}         // while draining: closed when sessions and jumps are none
	channels  [2]int                // open channels by channelKind
	lastUsed  time.Time             // when the last of them was closed
	wg        sync.WaitGroup        // goroutines of channels
	over      chan struct{}         // closed when the library has let go of it
}

// serveConn serves one accepted connection to its end.
func (s *Server) serveConn(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	c := s.newConn(nc)
	defer contain(c.log, "connection", nil)
	defer c.end(errGone)

	from := nc.RemoteAddr()
	ticket := s.gate.enter(from, c.tooLate)
	if ticket == nil {
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write([]byte("Too many new connections or failed logins from your address; wait a few seconds.\r\n"))
		if skipped, ok := s.failures.take(); ok {
			c.log.Info("ssh connection refused", "err", "too many new connections or failed logins", "unlogged", skipped)
		}
		return
	}
	defer s.gate.leave(ticket)
	c.serve(func() {
		s.gate.leave(ticket)
		s.gate.welcome(from)
	})
	s.gate.failed(from, c.failure())
}

// tooLate ends a connection whose time for the handshake is over, or whose
// place another one takes.
func (c *conn) tooLate() {
	c.late.Store(true)
	_ = c.wire.Close()
}

// failure says how a connection failed to get in, if it did. It is asked once
// the connection has ended.
func (c *conn) failure() failure {
	c.mu.Lock()
	stopping := c.stopping
	c.mu.Unlock()
	switch {
	case c.known.Load() || stopping:
		return noFailure
	case c.flooded.Load():
		return failedFlood
	case c.late.Load():
		return failedLate
	case c.turned != "":
		return failedKeys
	}
	return failedSilent
}

// newConn makes what a connection is served with.
func (s *Server) newConn(nc net.Conn) *conn {
	ctx, end := context.WithCancelCause(context.Background())
	c := &conn{
		srv: s, wire: newWire(nc, s.cfg.Ident), began: s.cfg.Now(), ctx: ctx, end: end,
		log: s.cfg.Log.With("remote", nc.RemoteAddr().String()),
		id:  newConnectionID(), remote: nc.RemoteAddr().String(),
		sessions: make(map[*session]struct{}),
		over:     make(chan struct{}),
	}
	c.flow.received = c.wire.in.Load
	c.wire.conn = c
	c.wire.quick.Store(!s.slowACK)
	return c
}

// serve takes a connection through the handshake and to its end. admitted is
// called when the client is authenticated.
func (c *conn) serve(admitted func()) {
	s := c.srv
	late := time.AfterFunc(s.cfg.Limits.Handshake, c.tooLate)
	defer late.Stop()
	c.extend = func(d time.Duration) { late.Reset(d) }
	c.authenticated = func() {
		late.Stop()
		if !c.known.Swap(true) {
			c.watchUnused()
		}
		admitted()
		c.wire.quick.Store(false)
	}
	if !s.add(c) {
		return
	}
	defer s.remove(c)
	defer close(c.over)
	defer c.farewell()
	if err := c.wire.greet(s.fastAES); err != nil {
		s.failed(c.wire, err)
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

// busy reports whether something runs on the connection. The caller holds c.mu.
func (c *conn) busy() bool { return len(c.sessions) > 0 || c.jumps > 0 }

// settled tells a drain when nothing runs any more. The caller holds c.mu.
func (c *conn) settled() {
	if c.idle != nil && !c.busy() {
		close(c.idle)
	}
}

// stopCommands ends the commands of the command tree that still run, and waits
// a moment for their last words.
func (c *conn) stopCommands() {
	c.mu.Lock()
	told := false
	for s := range c.sessions {
		told = s.stopCommand(true) || told
	}
	c.mu.Unlock()
	if !told {
		return
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-c.idle:
	case <-late.C:
	}
}

// lastWords is how long a connection may take to end once everything on it was
// told to.
const lastWords = time.Second

// drain ends the connection of a gateway that stops: clients with sessions are
// told and given until deadline ends.
func (c *conn) drain(deadline context.Context) {
	c.mu.Lock()
	c.stopping = true
	c.idle = make(chan struct{})
	busy := c.busy()
	if !busy {
		close(c.idle)
	}
	for s := range c.sessions {
		s.drain("sandgate: the gateway is stopping; this connection ends soon, what runs in the sandbox goes on")
	}
	c.mu.Unlock()
	if busy {
		select {
		case <-c.idle:
		case <-deadline.Done():
			c.stopCommands()
		}
		c.end(errStopping)
		// The last words are on their way; most clients leave by themselves.
		last, cancel := context.WithTimeout(context.Background(), lastWords)
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
