package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Config is what an Agent depends on. Zero fields take the defaults named.
type Config struct {
	// Version is what the guest calls itself in the handshake ("dev").
	Version string
	// Workspace is where relative paths resolve and processes start
	// ("/workspace"). It is made when it is missing.
	Workspace string
	// Env is the environment that every process starts from ("KEY=value").
	Env []string
	// Etc is the directory of passwd and group ("/etc").
	Etc string
	// Program is the guest program, which builtins are run from by calling it
	// "guest". Empty: there are no builtins. It is never guessed: what runs may
	// be a test, and calling that again would begin all its tests anew.
	Program string
	// Runtime is where the guest keeps what belongs to a life of the sandbox
	// and not to its files: private sockets, and the programs that it lends to
	// sandboxes that have none of their own. It is made when it is missing. Empty:
	// private sockets are made in the directory for temporary files, and no
	// program is lent.
	Runtime string
	// Reap makes the agent wait for every child of this process, its own or
	// not, and end everything on Shutdown. Only for PID 1.
	Reap bool
	// HangupGrace is the time between SIGHUP and SIGKILL of Hangup (5 s).
	HangupGrace time.Duration
	// ShutdownGrace is the time between SIGTERM and SIGKILL of Shutdown (500 ms).
	ShutdownGrace time.Duration
	// KeepFinished and KeepTime bound how many finished processes are kept
	// that nobody has collected, and for how long (128, 15 min).
	KeepFinished int
	KeepTime     time.Duration
	// KeepUnforgotten and KeepUnforgottenTime bound those that the host asked
	// to keep until it forgets them (256, 7 days).
	KeepUnforgotten     int
	KeepUnforgottenTime time.Duration
	// SocketCheck is how often PID 1 looks whether the path of its socket
	// still is its socket (2 s).
	SocketCheck time.Duration
	// Now is the clock (time.Now).
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	or := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	orTime := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&c.Version, "dev")
	or(&c.Workspace, "/workspace")
	or(&c.Etc, "/etc")
	orTime(&c.HangupGrace, 5*time.Second)
	orTime(&c.ShutdownGrace, 500*time.Millisecond)
	orTime(&c.KeepTime, 15*time.Minute)
	orTime(&c.KeepUnforgottenTime, 7*24*time.Hour)
	orTime(&c.SocketCheck, 2*time.Second)
	if c.KeepFinished == 0 {
		c.KeepFinished = 128
	}
	if c.KeepUnforgotten == 0 {
		c.KeepUnforgotten = 256
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Agent keeps the processes of one sandbox. It is safe for concurrent use.
type Agent struct {
	cfg    Config
	bootID string
	reaper *reaper
	passwd accounts
	group  accounts

	mu       sync.Mutex
	procs    map[string]*process
	sessions map[*session]struct{}
	closed   bool
	sweep    *time.Timer
	quiet    *time.Timer // gives memory back when nothing large moves any more

	archives chan struct{} // holds one element for each archive under way

	shutdownOnce sync.Once
	down         chan struct{} // closed when Shutdown has finished
}

// New returns an Agent without processes.
func New(cfg Config) *Agent {
	cfg = cfg.withDefaults()
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &Agent{
		cfg:      cfg,
		bootID:   hex.EncodeToString(id[:]),
		passwd:   accounts{path: filepath.Join(cfg.Etc, "passwd"), fields: 7},
		group:    accounts{path: filepath.Join(cfg.Etc, "group"), fields: 4},
		reaper:   newReaper(cfg.Reap),
		procs:    make(map[string]*process),
		sessions: make(map[*session]struct{}),
		down:     make(chan struct{}),
		archives: make(chan struct{}, maxArchives),
	}
}

// Serve speaks the protocol on rwc until the host leaves, ctx ends or the
// agent shuts down. It owns rwc and closes it. The error is nil when the host
// left in good order.
func (a *Agent) Serve(ctx context.Context, rwc io.ReadWriteCloser) error {
	defer rwc.Close()
	stop := context.AfterFunc(ctx, func() { rwc.Close() })
	defer stop()

	window, err := a.handshake(rwc)
	if err != nil {
		return err
	}
	mux, err := wire.Guest(rwc, window)
	if err != nil {
		return err
	}
	defer mux.Close()
	s := &session{agent: a, mux: mux, cuts: make(map[uint64]func()), listeners: make(map[uint64]*listener)}
	if !a.enter(s) {
		return fault.New(fault.State, "the sandbox is shutting down")
	}
	defer a.leave(s)
	err = s.serve()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

func (a *Agent) handshake(rw io.ReadWriter) (window int, err error) {
	offer, err := wire.ReadOffer(rw)
	if err != nil {
		return 0, err
	}
	version, window, ok := offer.Choose()
	if !ok {
		err := wire.Violation("the host speaks protocol %d to %d and the guest %d to %d",
			offer.Oldest, offer.Newest, wire.OldestVersion, wire.NewestVersion)
		return 0, errors.Join(err, wire.WriteAnswer(rw, wire.Answer{Protocol: wire.NewestVersion, Error: err.Error()}))
	}
	return window, wire.WriteAnswer(rw, wire.Answer{Protocol: version, Version: a.cfg.Version, BootID: a.bootID, Window: window})
}

func (a *Agent) enter(s *session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.sessions[s] = struct{}{}
	return true
}

func (a *Agent) leave(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s)
}

// Done is closed when Shutdown has ended everything.
func (a *Agent) Done() <-chan struct{} { return a.down }
