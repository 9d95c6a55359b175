package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sshgw"
)

// drainTime is how long requests under way have to end when the server stops.
const drainTime = 5 * time.Second

// run serves until ctx ends, a stop is asked for, or a listener fails. When it
// returns nothing of the server runs any more; Close is still to be called.
func (s *server) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)

	g.Go(func() error { return s.engine.Run(ctx) })
	if s.network != nil {
		g.Go(func() error { return s.watchRefusals(ctx) })
	}
	local := s.withStop(s.handler(s.socketPrincipal), stop)
	g.Go(func() error { return s.serveHTTP(ctx, s.socket, local) })
	if s.httpLn != nil {
		g.Go(func() error { return s.serveHTTP(ctx, s.httpLn, s.handler(s.bearerPrincipal)) })
	}
	if s.sshLn != nil {
		if err := s.openGate(); err != nil {
			return err
		}
		g.Go(func() error { return s.gate.Serve(ctx, s.sshLn) })
	}
	defer func() {
		// What the last connections did, too.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		s.visitors.flush(late)
	}()
	g.Go(func() error {
		s.visitors.run(ctx)
		return nil
	})
	return g.Wait()
}

// handler is the HTTP API for callers that principal recognises.
func (s *server) handler(principal func(*http.Request) (keys.Principal, error)) http.Handler {
	return api.NewHandler(api.Config{
		As:           func(p keys.Principal) sandbox.Operations { return s.engine.As(p) },
		Principal:    principal,
		Recheck:      s.engine.Recheck,
		Info:         s.info,
		Version:      version,
		Log:          s.cfg.log,
		StreamSecret: s.streamSecret,
	})
}

// info is what a client needs to know of this server.
func (s *server) info() api.Info {
	i := api.Info{Version: version, Engine: s.driver.Name(), Mode: s.engine.Capabilities().Mode}
	if s.sshLn != nil {
		i.SSH = s.sshLn.Addr().String()
	}
	for _, k := range s.identity() {
		i.HostKeys = append(i.HostKeys, string(ssh.MarshalAuthorizedKey(k.PublicKey())))
	}
	return i
}

// withStop adds the way to end the server, which only the unix socket has.
func (s *server) withStop(next http.Handler, stop func()) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.socketPrincipal(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		s.cfg.log.Info("stop asked for over the socket")
		w.WriteHeader(http.StatusNoContent)
		stop()
	})
	return mux
}

// serveHTTP serves one listener until ctx ends, then lets requests under way
// end for drainTime.
func (s *server) serveHTTP(ctx context.Context, ln net.Listener, h http.Handler) error {
	srv := api.NewServer(h)
	srv.ConnContext = withPeer
	srv.ErrorLog = slog.NewLogLogger(s.cfg.log.Handler(), slog.LevelWarn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	}()
	err := srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		<-done
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, "the listener on %s failed", ln.Addr())
}

// openGate makes the gateway, which reloads reach from then on.
func (s *server) openGate() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	gate, err := s.gateway()
	s.gate = gate
	return err
}

// gateway makes the ssh gateway over the engine.
func (s *server) gateway() (*sshgw.Server, error) {
	// Only in-process doors reach this handler, and they say who is there.
	commands := s.handler(nil)
	hostKeys, err := s.shownKeys(s.identity())
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "%v", err)
	}
	return sshgw.New(sshgw.Config{
		HostKeys: hostKeys,
		Authenticate: func(ctx context.Context, key ssh.PublicKey) (keys.Principal, error) {
			return s.engine.AuthenticateKey(ctx, ssh.FingerprintSHA256(key), "ssh")
		},
		Certificate: func(ctx context.Context, cert *ssh.Certificate) (keys.Principal, error) {
			return s.engine.AuthenticateCertificate(ctx, cert, "ssh")
		},
		Join:    s.engine.Join,
		Recheck: s.engine.Recheck,
		Proven: func(ctx context.Context, p keys.Principal) {
			if p.Certificate == (keys.Certificate{}) {
				s.engine.KeyUsed(ctx, p.KeyID)
			}
		},
		As: func(p keys.Principal) sandbox.Operations { return s.engine.As(p) },
		Commands: func(ctx context.Context, cio sshgw.CommandIO, args []string) int {
			return remoteCommand(ctx, cio, commands, s.sshLn.Addr().String(), args)
		},
		API: func(ctx context.Context, p keys.Principal, rwc io.ReadWriteCloser) {
			if err := api.ServeConn(ctx, commands, p, rwc); err != nil {
				s.cfg.log.Debug("serve the API over ssh", "err", err)
			}
		},
		Compat: s.cfg.sshCompat, NoForwarding: s.cfg.noForwarding,
		Limits: s.cfg.limits, Audit: s.record, AuditCommands: s.cfg.auditCommands,
		Log: s.cfg.log,
	})
}
