package sshgw

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// newTrustingGateway trusts the certificates of ca, whose file is in dir.
func newTrustingGateway(t *testing.T) (g *gateway, ca gossh.Signer) {
	t.Helper()
	ca = newSigner(t, "ed25519")
	file := filepath.Join(t.TempDir(), "authorities")
	if err := os.WriteFile(file, gossh.MarshalAuthorizedKey(ca.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	trust, err := keys.OpenTrust(file, "")
	if err != nil {
		t.Fatal(err)
	}
	g = newGateway(t, func(c *Config) {
		c.Certificate = func(_ context.Context, cert *gossh.Certificate) (keys.Principal, error) {
			p, err := trust.Authenticate(cert, "ssh", time.Now())
			if err != nil { // as the Engine says it
				return p, fault.Wrap(err, fault.Denied, "this certificate is not accepted: %v", err)
			}
			return p, nil
		}
		c.Recheck = nil // of the harness, which knows plain keys alone
	})
	return g, ca
}

// certify has a key of dir signed for alice, and puts the certificate where
// clients look for it.
func (g *gateway) certify(key string, ca gossh.Signer, change func(*gossh.Certificate)) gossh.Signer {
	g.tb.Helper()
	s := g.signer(key)
	cert := &gossh.Certificate{
		Key: s.PublicKey(), CertType: gossh.UserCert, KeyId: "x", Serial: 1, ValidPrincipals: []string{"alice"}, ValidBefore: gossh.CertTimeInfinity,
		Permissions: gossh.Permissions{
			CriticalOptions: map[string]string{},
			Extensions:      map[string]string{"permit-pty": "", "permit-port-forwarding": "", "permit-agent-forwarding": ""},
		},
	}
	if change != nil {
		change(cert)
	}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		g.tb.Fatal(err)
	}
	g.write(key+"-cert.pub", string(gossh.MarshalAuthorizedKey(cert)))
	signer, err := gossh.NewCertSigner(cert, s)
	if err != nil {
		g.tb.Fatal(err)
	}
	return signer
}

// P3: a certificate opens the door, within its options; whoever has only the
// certificate and not its key stays outside.
func TestP03CertificateOptions(t *testing.T) {
	g, ca := newTrustingGateway(t)
	for name, c := range map[string]struct {
		change         func(*gossh.Certificate)
		args           []string
		status         int
		stdout, stderr string
	}{
		"good":            {nil, []string{"gw", "whoami"}, 0, "alice member ssh\n", ""},
		"in a sandbox":    {nil, []string{"box@gw", "echo in"}, 0, "in\n", ""},
		"from here":       {func(c *gossh.Certificate) { c.CriticalOptions["source-address"] = "10.0.0.0/8,127.0.0.0/8" }, []string{"gw", "whoami"}, 0, "alice member ssh\n", ""},
		"from elsewhere":  {func(c *gossh.Certificate) { c.CriticalOptions["source-address"] = "10.0.0.0/8" }, []string{"gw", "whoami"}, 255, "", ""},
		"forced":          {func(c *gossh.Certificate) { c.CriticalOptions["force-command"] = `echo "$SSH_ORIGINAL_COMMAND" forced` }, []string{"box@gw", "rm -rf /"}, 0, "rm -rf / forced\n", ""},
		"forced shell":    {func(c *gossh.Certificate) { c.CriticalOptions["force-command"] = "echo forced" }, []string{"-T", "box@gw"}, 0, "forced\n", ""},
		"forced api":      {func(c *gossh.Certificate) { c.CriticalOptions["force-command"] = "whoami" }, []string{"-s", "gw", APISubsystem}, 0, "alice member ssh\n", ""},
		"no terminal":     {func(c *gossh.Certificate) { delete(c.Extensions, "permit-pty") }, []string{"-tt", "box@gw", "tty"}, 255, "", "PTY allocation request failed"},
		"expired":         {func(c *gossh.Certificate) { c.ValidBefore = 1 }, []string{"gw", "whoami"}, 255, "", "has expired"},
		"of nobody":       {func(c *gossh.Certificate) { c.ValidPrincipals = nil }, []string{"gw", "whoami"}, 255, "", "names no principal"},
		"unknown demand":  {func(c *gossh.Certificate) { c.CriticalOptions["x@y"] = "" }, []string{"gw", "whoami"}, 255, "", `demands "x@y"`},
		"for another box": {nil, []string{"-n", "sbx_gone@gw", "true"}, 255, "", "no sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			g.certify("stranger", ca, c.change)
			r := run(t, g.sshAs("stranger", c.args...), strings.NewReader(""))
			r.expect(t, c.status, c.stdout)
			if !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("stderr %q, want %q in it", r.stderr, c.stderr)
			}
		})
	}
	g.certify("bob", newSigner(t, "ed25519"), nil) // of nobody's authority
	run(t, g.sshAs("bob", "-o", "CertificateFile="+filepath.Join(g.dir, "bob-cert.pub"), "gw", "whoami"), nil).expect(t, 0, "bob member ssh\n")
	cert := g.certify("stranger", ca, nil)
	cfg := g.clientConfig("gw", "bob")
	cfg.Auth = []gossh.AuthMethod{gossh.PublicKeys(stolen{cert.PublicKey(), g.signer("bob")})}
	if c, err := gossh.Dial("tcp", g.addr.String(), cfg); err == nil {
		_ = c.Close()
		t.Error("somebody else's certificate was accepted")
	}
}

// stolen shows a key and signs with another.
type stolen struct {
	shown gossh.PublicKey
	own   gossh.Signer
}

func (s stolen) PublicKey() gossh.PublicKey { return s.shown }
func (s stolen) Sign(r io.Reader, data []byte) (*gossh.Signature, error) {
	return s.own.Sign(r, data)
}

// authenticator is a security key in software.
type authenticator struct {
	pub   gossh.PublicKey
	sign  func(blob []byte) []byte
	flags byte // what it says of touch (1) and PIN (4)
}

func newAuthenticator(t *testing.T, kind string) *authenticator {
	t.Helper()
	const application = "ssh:"
	a := &authenticator{}
	var blob []byte
	if kind == gossh.KeyAlgoSKED25519 {
		pub, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		blob = gossh.Marshal(struct{ Type, Key, Application string }{kind, string(pub), application})
		a.sign = func(b []byte) []byte { return ed25519.Sign(private, b) }
	} else {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		point, err := private.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		blob = gossh.Marshal(struct{ Type, Curve, Point, Application string }{kind, "nistp256", string(point), application})
		a.sign = func(b []byte) []byte {
			sum := sha256.Sum256(b)
			r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
			if err != nil {
				t.Error(err)
				return nil
			}
			return gossh.Marshal(struct{ R, S *big.Int }{r, s})
		}
	}
	var err error
	if a.pub, err = gossh.ParsePublicKey(blob); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authenticator) PublicKey() gossh.PublicKey { return a.pub }

func (a *authenticator) Sign(_ io.Reader, data []byte) (*gossh.Signature, error) {
	application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(data)
	state := []byte{a.flags, 0, 0, 0, 9}
	blob := append(append(append([]byte{}, application[:]...), state...), message[:]...)
	return &gossh.Signature{Format: a.pub.Type(), Blob: a.sign(blob), Rest: state}, nil
}

// A security key opens the door with a touch, and without one only where its
// registration says so.
func TestSecurityKeys(t *testing.T) {
	g := newGateway(t)
	for _, kind := range []string{gossh.KeyAlgoSKED25519, gossh.KeyAlgoSKECDSA256} {
		for _, c := range []struct {
			noTouch bool
			flags   byte
			ok      bool
		}{{false, 1, true}, {false, 5, true}, {false, 0, false}, {false, 4, false}, {true, 0, true}, {true, 1, true}} {
			a := newAuthenticator(t, kind)
			a.flags = c.flags
			g.register(a.pub, keys.Principal{ID: "alice", Role: keys.Member, NoTouch: c.noTouch})
			cfg := g.clientConfig("gw", "alice")
			cfg.Auth = []gossh.AuthMethod{gossh.PublicKeys(a)}
			conn, err := gossh.Dial("tcp", g.addr.String(), cfg)
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != c.ok {
				t.Errorf("%s, %+v: %v", kind, c, err)
			}
		}
	}
}
