package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/store"
	"github.com/sandgate/sandgate/sshgw"
)

// matrix is a real gateway on a real engine and store, over a driver without
// walls, and what its clients try to reach: one sandbox of alice's, in the
// project web.
type matrix struct {
	t       *testing.T
	engine  *sandbox.Engine
	store   *store.Store
	trust   *keys.Trust
	addr    string
	box     string
	tcp     string // where something listens, as the sandbox sees it
	unix    string
	host    ssh.PublicKey
	ca      ssh.Signer
	sockets string // folder for sockets
}

func newSSHSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg-") // short, for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &matrix{t: t, ca: newSSHSigner(t), sockets: dir}
	authorities := filepath.Join(dir, "ca")
	if err := os.WriteFile(authorities, ssh.MarshalAuthorizedKey(m.ca.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	if m.trust, err = keys.OpenTrust(authorities, ""); err != nil {
		t.Fatal(err)
	}
	if m.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "state.db")}); err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost()
	if m.engine, err = sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: fake.New(fake.Config{Host: host}), Store: m.store, Images: oneRuntime{t.TempDir()},
		Guest: driver.Guest{Path: builtBinary}, GuestDigest: "test", OutputDir: filepath.Join(dir, "executions"),
		DefaultRuntime: "host:latest", Trust: m.trust,
	}); err != nil {
		t.Fatal(err)
	}
	e := m.engine
	handler := api.NewHandler(api.Config{As: func(p keys.Principal) sandbox.Operations { return e.As(p) }, Recheck: e.Recheck})
	hostKey := newSSHSigner(t)
	m.host = hostKey.PublicKey()
	gate, err := sshgw.New(sshgw.Config{
		HostKeys: []ssh.Signer{hostKey},
		Authenticate: func(ctx context.Context, key ssh.PublicKey) (keys.Principal, error) {
			return e.AuthenticateKey(ctx, ssh.FingerprintSHA256(key), "ssh")
		},
		Certificate: func(ctx context.Context, cert *ssh.Certificate) (keys.Principal, error) {
			return e.AuthenticateCertificate(ctx, cert, "ssh")
		},
		Join: e.Join, Recheck: e.Recheck,
		As: func(p keys.Principal) sandbox.Operations { return e.As(p) },
		Commands: func(ctx context.Context, cio sshgw.CommandIO, args []string) int {
			return remoteCommand(ctx, cio, handler, m.addr, args)
		},
		API: func(ctx context.Context, p keys.Principal, conn io.ReadWriteCloser) {
			_ = api.ServeConn(ctx, handler, p, conn)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gate.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, e.Close(), host.Close(), m.store.Close()); err != nil {
			t.Error(err)
		}
	})
	m.tcp, m.unix = m.listen("tcp", "127.0.0.1:0"), m.listen("unix", filepath.Join(dir, "in"))
	made, err := e.As(keys.Principal{ID: "alice", Role: keys.Admin}).Create(t.Context(), sandbox.CreateRequest{Name: "dev", Project: "web"})
	if err != nil {
		t.Fatal(err)
	}
	m.box = made.Sandbox.ID
	return m
}

// listen answers everybody who connects with "in".
func (m *matrix) listen(network, address string) string {
	m.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "in")
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// who is one who tries.
type who struct {
	name   string
	signer ssh.Signer
	may    []string // names of actions
}

// register registers a key, past the checks of the Engine.
func (m *matrix) register(k keys.Key) ssh.Signer {
	m.t.Helper()
	s := newSSHSigner(m.t)
	record, err := keys.FromPublicKey(s.PublicKey(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	record.Principal, record.Role, record.Scope, record.ExpiresAt = k.Principal, k.Role, k.Scope, k.ExpiresAt
	if err := m.store.AddKey(m.t.Context(), record); err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *matrix) certified(extensions ...string) ssh.Signer {
	m.t.Helper()
	s := newSSHSigner(m.t)
	cert := &ssh.Certificate{
		Key: s.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{"alice"}, ValidBefore: ssh.CertTimeInfinity,
		Permissions: ssh.Permissions{Extensions: map[string]string{}},
	}
	for _, x := range extensions {
		cert.Extensions[x] = ""
	}
	if err := cert.SignCert(rand.Reader, m.ca); err != nil {
		m.t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(cert, s)
	if err != nil {
		m.t.Fatal(err)
	}
	return signer
}

func (m *matrix) dial(user string, signer ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", m.addr, m.clientConfig(user, signer))
}

func (m *matrix) clientConfig(user string, signer ssh.Signer) *ssh.ClientConfig {
	cfg := &ssh.ClientConfig{User: user, HostKeyCallback: ssh.FixedHostKey(m.host), Timeout: time.Minute}
	if signer != nil {
		cfg.Auth = []ssh.AuthMethod{ssh.PublicKeys(signer)}
	}
	return cfg
}

// tryOut is something a client of the sandbox's account does. It returns an
// error when that did not work.
type tryOut struct {
	name string
	do   func(m *matrix, c *ssh.Client, id string, signer ssh.Signer) error
}

// output runs a command and wants "in".
func output(c *ssh.Client, command string) error {
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	var errs strings.Builder
	s.Stderr = &errs
	out, err := s.Output(command)
	if err != nil || strings.TrimSpace(string(out)) != "in" {
		return fmt.Errorf("printed %q and %q: %w", out, errs.String(), errors.Join(err, errors.New("failed")))
	}
	return nil
}

// greeted wants to be told "in".
func greeted(c net.Conn, err error) error {
	if err != nil {
		return err
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "in" {
		return fmt.Errorf("read %q, %w", b, errors.Join(err, errors.New("not what was there")))
	}
	return nil
}

func listens(l net.Listener, err error) error {
	if err != nil {
		return err
	}
	return l.Close()
}

func tryOuts() []tryOut {
	type f = func(m *matrix, c *ssh.Client, id string, signer ssh.Signer) error
	return []tryOut{
		{"shell", f(func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			var out strings.Builder
			s.Stdin, s.Stdout = strings.NewReader("echo i''n; exit 0\n"), &out
			if err := s.Shell(); err != nil {
				return err
			}
			if err := s.Wait(); err != nil || !strings.Contains(out.String(), "in") {
				return errors.Join(err, errors.New(out.String()))
			}
			return nil
		})},
		{"exec", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return output(c, "echo in") }},
		{"sftp", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			var errs strings.Builder
			s.Stderr = &errs
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.RequestSubsystem("sftp"); err != nil {
				return err
			}
			client, err := sftp.NewClientPipe(out, in)
			if err != nil { // in what words depends on the moment
				_ = s.Wait()
				return errors.New(errs.String())
			}
			defer client.Close()
			f, err := client.Create("in")
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("in"))
			return errors.Join(err, f.Close())
		}},
		{"scp", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.Start("scp -t -- copied"); err != nil {
				return err
			}
			ack := make([]byte, 1)
			for _, step := range []string{"", "C0644 2 copied\n", "in\x00"} {
				_, _ = io.WriteString(in, step)
				if _, err := io.ReadFull(out, ack); err != nil || ack[0] != 0 {
					return fmt.Errorf("scp answers %q, %w", ack, errors.Join(err, errors.New("refused")))
				}
			}
			_ = in.Close()
			return s.Wait()
		}},
		{"-L", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return greeted(c.Dial("tcp", m.tcp)) }},
		{"-D", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			_, port, err := net.SplitHostPort(m.tcp)
			if err != nil {
				return err
			}
			return greeted(c.Dial("tcp", "localhost:"+port))
		}},
		{"-R", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			return listens(c.Listen("tcp", "127.0.0.1:0"))
		}},
		{"-J", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			outer, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer outer.Close()
			through, err := outer.Dial("tcp", id+":22")
			if err != nil {
				return err
			}
			conn, channels, requests, err := ssh.NewClientConn(through, "inner", m.clientConfig(id, signer))
			if err != nil {
				return err
			}
			inner := ssh.NewClient(conn, channels, requests)
			defer inner.Close()
			return output(inner, "echo in")
		}},
		{"streamlocal", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return greeted(c.Dial("unix", m.unix)) }},
		{"-R streamlocal", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			return listens(c.ListenUnix(filepath.Join(m.sockets, "back")))
		}},
		{"agent", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			if err := agent.ForwardToAgent(c, agent.NewKeyring()); err != nil {
				return err
			}
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			if err := agent.RequestAgentForwarding(s); err != nil {
				return err
			}
			out, err := s.Output(`test -S "$SSH_AUTH_SOCK" && echo in`)
			if err != nil || string(out) != "in\n" {
				return fmt.Errorf("printed %q: %w", out, errors.Join(err, errors.New("no agent")))
			}
			return nil
		}},
		{"command tree", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			c, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			out, err := s.CombinedOutput("get " + id)
			if err != nil {
				return fmt.Errorf("%s%w", out, err)
			}
			return nil
		}},
		{"API", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			c, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.RequestSubsystem(sshgw.APISubsystem); err != nil {
				return err
			}
			client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return pipeConn{in, out}, nil
			}}}
			resp, err := client.Get("http://gateway/sandbox/" + id)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
				return errors.New(string(body))
			}
			return nil
		}},
	}
}

// pipeConn is a connection of two pipes.
type pipeConn struct {
	io.WriteCloser
	r io.Reader
}

func (p pipeConn) Read(b []byte) (int, error)     { return p.r.Read(b) }
func (pipeConn) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (pipeConn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (pipeConn) SetDeadline(time.Time) error      { return nil }
func (pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (pipeConn) SetWriteDeadline(time.Time) error { return nil }

// P2: who may do what with a sandbox, on every door of ssh. To all others it
// looks like one that does not exist.
func TestP02AuthorizationMatrix(t *testing.T) {
	m := newMatrix(t)
	root := m.engine.As(keys.Principal{ID: "root", Role: keys.Admin})
	if _, err := root.CreateProject(t.Context(), sandbox.ProjectGroup, "web", ""); err != nil {
		t.Fatal(err)
	}
	if err := root.AddMember(t.Context(), sandbox.ProjectGroup, "web", "bob"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, x := range tryOuts() {
		all = append(all, x.name)
	}
	forwards := []string{"-L", "-D", "-R", "streamlocal", "-R streamlocal", "agent"}
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(names, n) })
	}
	scoped := func(s keys.Scope) ssh.Signer {
		return m.register(keys.Key{Principal: "alice", Role: keys.Member, Scope: s})
	}
	actors := []who{
		{"admin", m.register(keys.Key{Principal: "root", Role: keys.Admin}), all},
		{"owner", scoped(keys.Scope{}), all},
		{"project member", m.register(keys.Key{Principal: "bob", Role: keys.Member}), all},
		{"stranger", m.register(keys.Key{Principal: "carol", Role: keys.Member}), nil},
		{"expired key", m.register(keys.Key{Principal: "alice", Role: keys.Member, ExpiresAt: time.Now().Add(-time.Second)}), nil},
		{"key for this sandbox", scoped(keys.Scope{Sandboxes: []string{m.box}}), all},
		{"key by its name", scoped(keys.Scope{Sandboxes: []string{"dev"}}), all},
		{"key of its project", scoped(keys.Scope{Projects: []string{"web"}}), all},
		{"key for another sandbox", scoped(keys.Scope{Sandboxes: []string{"sbx_aaaaaaaaaaaa", "other"}}), nil},
		{"key of another project", scoped(keys.Scope{Projects: []string{"db"}}), nil},
		{"key without forwarding", scoped(keys.Scope{NoForwarding: true}), without(forwards...)},
		{"key for commands", scoped(keys.Scope{Verbs: []keys.Verb{keys.Exec}}), []string{"exec", "scp", "-J", "command tree", "API"}},
		{"key for files", scoped(keys.Scope{Verbs: []keys.Verb{keys.Files}}), []string{"sftp", "command tree", "API"}},
		{"key for shells", scoped(keys.Scope{Verbs: []keys.Verb{keys.Shell}}), []string{"shell", "command tree", "API"}},
		{"key for forwards", scoped(keys.Scope{Verbs: []keys.Verb{keys.Forward}}), []string{"-L", "-D", "-R", "streamlocal", "-R streamlocal", "command tree", "API"}},
		{"certificate", m.certified("permit-pty", "permit-port-forwarding", "permit-agent-forwarding"), all},
		{"bare certificate", m.certified(), without(forwards...)},
		{"unregistered key", newSSHSigner(t), nil},
		{"no key", nil, nil},
	}
	for _, a := range actors {
		t.Run(a.name, func(t *testing.T) {
			c, err := m.dial(m.box, a.signer)
			missing, merr := m.dial("sbx_zzzzzzzzzzzz", a.signer)
			if (err == nil) != (merr == nil) {
				t.Fatalf("the sandbox: %v, a missing one: %v", err, merr)
			}
			if err != nil {
				if len(a.may) > 0 {
					t.Fatal(err)
				}
				return // outside of every door
			}
			defer c.Close()
			defer missing.Close()
			for _, x := range tryOuts() {
				err := x.do(m, c, m.box, a.signer)
				if may := slices.Contains(a.may, x.name); may != (err == nil) {
					t.Errorf("%s: %v", x.name, err)
				}
				if len(a.may) > 0 || err == nil {
					continue
				}
				// What is not there says the same.
				never := x.do(m, missing, "sbx_zzzzzzzzzzzz", a.signer)
				hide := strings.NewReplacer(m.box, "ID", "sbx_zzzzzzzzzzzz", "ID")
				if never == nil || hide.Replace(err.Error()) != hide.Replace(never.Error()) {
					t.Errorf("%s tells them apart: %v and %v", x.name, err, never)
				}
			}
		})
	}
}
