package sshgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// DefaultIdent is the software version the server announces. It begins with
// OpenSSH because OpenSSH clients send eow@openssh.com, without which
// "ssh … yes | head -1" hangs for ever, to nothing else.
const DefaultIdent = "OpenSSH_10.0 Sandgate"

// Config is what a Server needs. The functions are called from many goroutines
// at once and must return when their context ends.
type Config struct {
	// HostKeys prove who the server is, preferred first. At least one.
	HostKeys []gossh.Signer

	// Authenticate finds the principal of a public key. It is a pure lookup:
	// it is called for keys that are merely offered, so it must not note a
	// use. NotFound refuses the key as unregistered; the message of any other
	// fault is shown to the client.
	Authenticate func(ctx context.Context, key gossh.PublicKey) (keys.Principal, error)
	// Certificate, when not nil, finds the principal of a certificate. It is a
	// lookup as Authenticate is; the message of a fault is shown to the client.
	Certificate func(ctx context.Context, cert *gossh.Certificate) (keys.Principal, error)
	// Join, when not nil, registers a key that was proven on the strength of an
	// invitation code, and returns the record. Denied for a code that is no good.
	Join func(ctx context.Context, code string, key keys.Key) (keys.Key, error)
	// Proven, when not nil, is told of each principal after the client has
	// proven that it holds the key: the moment to note a use. It must not
	// block for long.
	Proven func(ctx context.Context, p keys.Principal)

	// Recheck, when not nil, says whether the key that proved p still opens
	// the door: it may have been deleted or have expired since. It is asked
	// before each channel is opened and before each session runs something.
	// On an error the client reads its line and loses the whole connection,
	// and with it what else runs there.
	Recheck func(ctx context.Context, p keys.Principal) error

	// As binds the operations to a principal.
	As func(p keys.Principal) sandbox.Operations
	// Commands runs the command tree for the control account and returns the
	// exit status. No arguments ask for the start page: the help, or the
	// dashboard on a terminal.
	Commands func(ctx context.Context, cio CommandIO, args []string) int
	// API serves one connection of the HTTP API (subsystem APISubsystem) until
	// it ends. It owns conn.
	API func(ctx context.Context, p keys.Principal, conn io.ReadWriteCloser)

	// Ident is the software version that is announced; default DefaultIdent.
	// Without the prefix "OpenSSH", OpenSSH clients do not say that their
	// output was closed, and remote commands in a pipe do not end.
	Ident string
	// Compat offers old clients more algorithms; see macs.
	Compat bool
	// AcceptEnv names the environment variables that clients may set, with a
	// final * as wildcard; default DefaultAcceptEnv. Some are refused whatever
	// it says.
	AcceptEnv []string

	// NoForwarding refuses every forwarded connection and agent; jumps are none.
	NoForwarding bool

	// Audit, when not nil, is told who does what. It must not block for long.
	Audit func(sandbox.AuditRecord)
	// AuditCommands has the text of commands in the records.
	AuditCommands bool

	Limits Limits
	Log    *slog.Logger
	Now    func() time.Time // default time.Now
}

// APISubsystem is the name of the subsystem that carries the HTTP API.
const APISubsystem = "sandgate-api"

// Limits bound what clients can use. Zero means the default.
type Limits struct {
	// Handshake is the time a client has from connecting to being
	// authenticated (20 s).
	Handshake time.Duration
	// HalfOpen bounds unauthenticated connections in all (100) and
	// HalfOpenPerSource those of one address (20). A newcomer over a bound
	// takes the place of the oldest, so connections that sit and wait cannot
	// lock anybody out.
	HalfOpen          int
	HalfOpenPerSource int
	// Burst (50) and Rate (20 a second) bound new connections of one address
	// (one /64 of IPv6).
	Burst int
	Rate  float64
	// PenaltyMax bounds how long an address is turned away that keeps failing
	// to get in (1 m); negative: it is not. See penalties.
	PenaltyMax time.Duration
	// LimitLoopback applies HalfOpenPerSource, Burst, Rate and penalties to
	// connections from this host too.
	LimitLoopback bool
	// AuthTries is how many keys a client may offer (20).
	AuthTries int

	// ConnectionsPerPrincipal (128), SessionsPerConnection (64) and
	// ForwardsPerConnection (256) bound what an authenticated client holds.
	ConnectionsPerPrincipal int
	SessionsPerConnection   int
	ForwardsPerConnection   int
	// SessionsPerPrincipal (256) and ForwardsPerPrincipal (1024) bound them over
	// all connections of a principal.
	SessionsPerPrincipal int
	ForwardsPerPrincipal int
	// BytesPerConnection (256 MiB) and Bytes (1 GiB, in all) bound what clients
	// have sent and nobody has taken. Over the first a connection is ended; over
	// the second no channel is opened, and a quarter above it the connection
	// that holds most is ended.
	BytesPerConnection int64
	Bytes              int64

	// SessionIdle and ForwardIdle close channels through which nothing goes for
	// so long, and Unused ends connections without any (0: never).
	SessionIdle time.Duration
	ForwardIdle time.Duration
	Unused      time.Duration

	// Keepalive is the time between signs of life that are asked for (15 s),
	// and KeepaliveMisses how many of them may pass unanswered (3).
	Keepalive       time.Duration
	KeepaliveMisses int

	// Drain is how long sessions may go on once the server is told to end (10 s).
	Drain time.Duration
}

func (l Limits) withDefaults() Limits {
	def(&l.Handshake, 20*time.Second)
	def(&l.HalfOpen, 100)
	def(&l.HalfOpenPerSource, 20)
	def(&l.Burst, 50)
	def(&l.Rate, 20)
	def(&l.AuthTries, 20)
	def(&l.ConnectionsPerPrincipal, 128)
	def(&l.SessionsPerConnection, 64)
	def(&l.ForwardsPerConnection, 256)
	def(&l.SessionsPerPrincipal, 256)
	def(&l.ForwardsPerPrincipal, 1024)
	def(&l.BytesPerConnection, 256<<20)
	def(&l.Bytes, 1<<30)
	def(&l.PenaltyMax, time.Minute)
	def(&l.Keepalive, 15*time.Second)
	def(&l.KeepaliveMisses, 3)
	def(&l.Drain, 10*time.Second)
	return l
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// withDefaults checks the config and fills in what was left out.
func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.HostKeys) == 0:
		return c, errors.New("configure ssh: no host key was given")
	case c.Authenticate == nil, c.As == nil, c.Commands == nil, c.API == nil:
		return c, errors.New("configure ssh: Authenticate, As, Commands and API are all required")
	}
	def(&c.Ident, DefaultIdent)
	if len(c.Ident) > 200 {
		return c, errors.New("configure ssh: the identification string is longer than 200 bytes")
	}
	for _, b := range []byte(c.Ident) {
		if b < ' ' || b > '~' {
			return c, fmt.Errorf("configure ssh: the identification string %q must be printable ASCII", c.Ident)
		}
	}
	if c.AcceptEnv == nil {
		c.AcceptEnv = DefaultAcceptEnv()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Limits = c.Limits.withDefaults()
	return c, nil
}
