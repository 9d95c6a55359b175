package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

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
