package sshgw

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The tests run the gateway in this process, on loopback, and drive it with
// the system's OpenSSH client or with x/crypto's, against real processes that
// the guest agent starts on this host.

// gateway is a server under test and what it is made of.
type gateway struct {
	tb      testing.TB
	cfg     Config
	srv     *Server
	addr    netip.AddrPort
	dir     string
	host    gossh.Signer
	boxes   *boxes
	log     *syncBuffer
	stop    context.CancelFunc
	stopped chan struct{} // closed when Serve has returned

	mu    sync.Mutex
	users map[string]keys.Principal // by fingerprint
	uses  []string                  // principals whose key was proven
}

// option changes the configuration of a gateway before it starts.
type option func(*Config)

// newGateway starts a gateway with two registered users, alice and bob, whose
// keys are alice and bob in dir. It is stopped when the test ends, and the
// test fails if it leaves goroutines behind.
func newGateway(tb testing.TB, options ...option) *gateway {
	tb.Helper()
	checkLeaks(tb)
	g := &gateway{
		tb: tb, dir: tb.TempDir(), log: new(syncBuffer), stopped: make(chan struct{}),
		users: make(map[string]keys.Principal),
	}
	g.boxes = newBoxes(tb)
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if g.host, err = gossh.NewSignerFromKey(priv); err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{"alice", "bob"} {
		g.register(g.newKey(name), keys.Principal{ID: name, Role: keys.Member})
	}
	g.newKey("stranger")
	g.cfg = Config{
		HostKeys:     []gossh.Signer{g.host},
		Authenticate: g.authenticate,
		Proven: func(_ context.Context, p keys.Principal) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.uses = append(g.uses, p.ID)
		},
		Recheck:  g.recheck,
		As:       g.boxes.as,
		Commands: commands,
		API: func(_ context.Context, p keys.Principal, conn io.ReadWriteCloser) {
			fmt.Fprintf(conn, "api of %s\n", p.ID)
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		},
		Log:    slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Limits: Limits{Drain: 5 * time.Second},
	}
	for _, o := range options {
		o(&g.cfg)
	}
	srv, err := New(g.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	g.srv = srv
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g.addr = l.Addr().(*net.TCPAddr).AddrPort()
	known := fmt.Sprintf("[%s]:%d %s", g.addr.Addr(), g.addr.Port(), gossh.MarshalAuthorizedKey(g.host.PublicKey()))
	g.write("known_hosts", known)
	g.write("config", fmt.Sprintf(`Host *
HostName %[1]s
Port %[2]d
HostKeyAlias [%[1]s]:%[2]d
UserKnownHostsFile %[3]s
StrictHostKeyChecking yes
BatchMode yes
IdentitiesOnly yes
IdentityAgent none
LogLevel INFO
`, g.addr.Addr(), g.addr.Port(), filepath.Join(g.dir, "known_hosts")))
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() {
		defer close(g.stopped)
		if err := srv.Serve(ctx, l); err != nil {
			tb.Errorf("Serve: %v", err)
		}
	}()
	tb.Cleanup(func() {
		stop()
		select {
		case <-g.stopped:
		case <-time.After(30 * time.Second):
			tb.Errorf("Serve did not return\n%s", stacks())
		}
		if tb.Failed() {
			tb.Logf("log of the gateway:\n%s", g.log.String())
		}
	})
	return g
}

func (g *gateway) write(name, content string) string {
	g.tb.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		g.tb.Fatal(err)
	}
	return path
}

// newKey makes a key pair in dir and returns the public half.
func (g *gateway) newKey(name string) gossh.PublicKey {
	g.tb.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		g.tb.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(priv, name)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.write(name, string(pem.EncodeToMemory(block)))
	signer, err := gossh.NewSignerFromKey(priv)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.write(name+".pub", string(gossh.MarshalAuthorizedKey(signer.PublicKey())))
	return signer.PublicKey()
}

func (g *gateway) register(key gossh.PublicKey, p keys.Principal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.KeyID = gossh.FingerprintSHA256(key)
	g.users[p.KeyID] = p
}

func (g *gateway) authenticate(_ context.Context, key gossh.PublicKey) (keys.Principal, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.users[gossh.FingerprintSHA256(key)]
	if !ok {
		return p, fault.New(fault.NotFound, "no such key")
	}
	return p, nil
}

// ssh returns a command of the OpenSSH client that connects as alice. args are
// options, destination ("user@gw") and command.
func (g *gateway) ssh(args ...string) *exec.Cmd { return g.sshAs("alice", args...) }

func (g *gateway) sshAs(key string, args ...string) *exec.Cmd {
	g.tb.Helper()
	// Options of the command line win over those of the file.
	full := append([]string{"-F", filepath.Join(g.dir, "config"), "-i", filepath.Join(g.dir, key)}, args...)
	cmd := exec.Command(sshPath(g.tb), full...)
	cmd.Env = append(os.Environ(), "HOME="+g.dir, "TERM=xterm", "LC_ALL=C.UTF-8")
	return cmd
}

func sshPath(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("ssh")
	if err != nil {
		tb.Skip("the OpenSSH client is not installed")
	}
	return path
}

// result is how a client ended.
type result struct {
	stdout, stderr string
	status         int
}

// patience is how long a client may take before the test gives up on it.
const patience = 60 * time.Second

// run runs a client to its end; stdin may be nil.
func run(tb testing.TB, cmd *exec.Cmd, stdin io.Reader) result {
	tb.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return finish(tb, cmd, &out, &errs)
}

func finish(tb testing.TB, cmd *exec.Cmd, out, errs fmt.Stringer) result {
	tb.Helper()
	giveUp := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !giveUp.Stop() {
		tb.Errorf("%v did not end in %v\n%s", cmd.Args, patience, stacks())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		tb.Errorf("%v: %v", cmd.Args, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// expect checks a result; want parts of "" are not looked at.
func (r result) expect(tb testing.TB, status int, stdout string) {
	tb.Helper()
	if r.status != status || stdout != "" && r.stdout != stdout {
		tb.Errorf("got status %d, stdout %q, stderr %q; want status %d, stdout %q", r.status, r.stdout, r.stderr, status, stdout)
	}
}

// dial connects with x/crypto's client.
func (g *gateway) dial(user, key string) *gossh.Client {
	g.tb.Helper()
	c, err := gossh.Dial("tcp", g.addr.String(), g.clientConfig(user, key))
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (g *gateway) clientConfig(user, key string) *gossh.ClientConfig {
	g.tb.Helper()
	return &gossh.ClientConfig{
		User: user, Auth: []gossh.AuthMethod{gossh.PublicKeys(g.signer(key))},
		HostKeyCallback: gossh.FixedHostKey(g.host.PublicKey()), Timeout: patience,
	}
}

func (g *gateway) signer(key string) gossh.Signer {
	g.tb.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, key))
	if err != nil {
		g.tb.Fatal(err)
	}
	s, err := gossh.ParsePrivateKey(b)
	if err != nil {
		g.tb.Fatal(err)
	}
	return s
}
