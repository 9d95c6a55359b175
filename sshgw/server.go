package sshgw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"charm.land/ssh"
	"charm.land/wish/v2"
	gossh "golang.org/x/crypto/ssh"
)

// Server is the SSH gateway. Make it with New.
type Server struct {
	cfg        Config
	ssh        *ssh.Server
	gate       *gate
	companions companions
	joinLimit  joinLimit
	identity   atomic.Pointer[[]gossh.Signer] // host keys; see setIdentity
	failures   *logLimit
	refusals   *logLimit    // of audit records that cost a client nothing
	buffered   atomic.Int64 // bytes that nobody has taken yet, in all connections
	fastAES    bool         // prefer AES-GCM where the client allows it
	slowACK    bool         // leave acknowledgements to the kernel, to measure what that costs

	mu       sync.Mutex
	conns    map[*conn]struct{}
	held     map[string]int    // connections of each principal
	using    [2]map[string]int // open channels of each principal, by channelKind
	stopping bool
}

// connKey finds the *conn in the context of the SSH library.
type connKey struct{}

// New checks the configuration and makes a server. It opens nothing.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	signers, err := hostSigners(cfg.HostKeys)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:      cfg,
		gate:     newGate(cfg.Limits, cfg.Now),
		failures: newLogLimit(cfg.Now, 10),
		refusals: newLogLimit(cfg.Now, 20),
		fastAES:  cpuHasAES(),
		conns:    make(map[*conn]struct{}),
		held:     make(map[string]int),
	}
	// Host keys are set in an option: without any, wish would write one into
	// the current directory.
	s.ssh, err = wish.NewServer(func(srv *ssh.Server) error {
		for _, k := range handshakeKeys(signers) {
			srv.AddHostKey(k)
		}
		srv.Version = cfg.Ident
		srv.ConnCallback = func(ctx ssh.Context, nc net.Conn) net.Conn {
			w, ok := nc.(*wire)
			if !ok {
				return nil
			}
			ctx.SetValue(connKey{}, w.conn)
			return nc
		}
		srv.ServerConfigCallback = func(ctx ssh.Context) *gossh.ServerConfig { return connOf(ctx).serverConfig() }
		srv.ConnectionFailedCallback = s.failed
		srv.ChannelHandlers = map[string]ssh.ChannelHandler{
			"session":                        channelHandler((*conn).serveSession),
			"direct-tcpip":                   channelHandler((*conn).serveDirectTCP),
			"direct-streamlocal@openssh.com": channelHandler((*conn).serveDirectUnix),
			"default":                        channelHandler((*conn).serveUnknown),
		}
		srv.RequestHandlers = map[string]ssh.RequestHandler{
			// All kinds come this way, for their answers must keep their order.
			"default": func(ctx ssh.Context, _ *ssh.Server, r *gossh.Request) (bool, []byte) {
				if sc, ok := ctx.Value(ssh.ContextKeyConn).(*gossh.ServerConn); ok {
					connOf(ctx).globalRequest(sc, r)
				}
				return false, nil
			},
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("configure ssh: %w", err)
	}
	s.identity.Store(&signers)
	return s, nil
}

// SetHostKeys has connections from now on see other host keys. A kind of key
// that is not among them any more stays until the server ends.
func (s *Server) SetHostKeys(all []gossh.Signer) error {
	signers, err := hostSigners(all)
	if err != nil {
		return err
	}
	s.setIdentity(signers)
	return nil
}

func connOf(ctx ssh.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// channelHandler adapts a method of conn to the library.
func channelHandler(serve func(*conn, *gossh.ServerConn, gossh.NewChannel)) ssh.ChannelHandler {
	return func(_ *ssh.Server, sc *gossh.ServerConn, nc gossh.NewChannel, ctx ssh.Context) {
		connOf(ctx).channel(sc, nc, serve)
	}
}

// Serve takes ownership of l and accepts connections until ctx ends. Then it
// stops accepting, tells clients, gives sessions Limits.Drain to end, closes
// what is left and returns nil once every goroutine it started has ended. If l
// fails, it does the same and returns the error. A Server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	unhook := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer unhook()
	var wg sync.WaitGroup
	err := s.accept(ctx, l, &wg)
	_ = l.Close()
	s.drain()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept ssh connections: %w", err)
}

// accept runs until ctx ends or the listener fails for good.
func (s *Server) accept(ctx context.Context, l net.Listener, wg *sync.WaitGroup) error {
	const firstPause, longestPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = firstPause
			wg.Go(func() { s.serveConn(nc) })
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return err
		}
		// Too many open files, mostly: it passes.
		s.cfg.Log.Warn("ssh accept", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		}
	}
}

// drain ends all connections: those without a session at once, the others when
// their sessions have ended or the time for it is over.
func (s *Server) drain() {
	s.mu.Lock()
	s.stopping = true
	left := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		left = append(left, c)
	}
	s.mu.Unlock()
	if len(left) == 0 {
		return
	}
	s.cfg.Log.Info("ssh draining", "connections", len(left), "for", s.cfg.Limits.Drain)
	deadline, cancel := context.WithTimeout(context.Background(), s.cfg.Limits.Drain)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range left {
		wg.Go(func() { c.drain(deadline) })
	}
	wg.Wait()
}

// add registers a connection; false when the server is stopping.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.buffered.Add(-c.held.Swap(0))
	if c.holder == "" {
		return
	}
	if s.held[c.holder]--; s.held[c.holder] <= 0 {
		delete(s.held, c.holder)
	}
}

// claim counts a connection for its principal. overLimit is whether that is
// one too many.
func (s *Server) claim(principal string) (overLimit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[principal]++
	return s.held[principal] > s.cfg.Limits.ConnectionsPerPrincipal
}

// failed logs a connection that did not get through the handshake.
func (s *Server) failed(nc net.Conn, err error) {
	if skipped, ok := s.failures.take(); ok {
		s.cfg.Log.Info("ssh connection refused", "remote", nc.RemoteAddr().String(), "err", quoted(err.Error()), "unlogged", skipped)
	}
}
