package sshgw

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/agent"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"

	gossh "golang.org/x/crypto/ssh"
)

// P1: whoever merely offers a key is not its owner, in whatever order, and
// offering counts as no use.
func TestP01OfferedKeyIsNotIdentity(t *testing.T) {
	g := newGateway(t)
	// The public half alone: the client offers bob and cannot sign.
	pub, err := os.ReadFile(filepath.Join(g.dir, "bob.pub"))
	if err != nil {
		t.Fatal(err)
	}
	victim := g.write("victim.pub", string(pub))
	mine := filepath.Join(g.dir, "alice")
	for _, order := range [][]string{{victim, mine}, {mine, victim}} {
		cmd := g.sshAs(filepath.Base(order[0]), "-i", order[1], "gw", "whoami")
		r := run(t, cmd, nil)
		r.expect(t, 0, "alice member ssh\n")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.uses, []string{"alice", "alice"}) {
		t.Errorf("keys noted as used: %v", g.uses)
	}
}

// An unregistered key is refused with a line that helps, once.
func TestUnknownKey(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.sshAs("stranger", "-i", filepath.Join(g.dir, "stranger2"), "box@gw", "true"), nil)
	r.expect(t, 255, "")
	fingerprint := gossh.FingerprintSHA256(g.signer("stranger").PublicKey())
	want := "sandgate: this key is not registered: " + fingerprint + "\nsandgate: ask an admin to run: sandgate key add <file with your public key>\n"
	if n := strings.Count(strings.ReplaceAll(r.stderr, "\r", ""), want); n != 1 {
		t.Errorf("the help was shown %d times: %q", n, r.stderr)
	}
	if !strings.Contains(r.stderr, "Permission denied (publickey).") {
		t.Errorf("other methods are offered: %q", r.stderr)
	}
}

// What the directory of keys says of a key reaches the client in one line that
// cannot move the cursor.
func TestKeyRefusalIsSaid(t *testing.T) {
	g := newGateway(t, func(c *Config) {
		c.Authenticate = func(_ context.Context, _ gossh.PublicKey) (keys.Principal, error) {
			return keys.Principal{}, fault.New(fault.Denied, "this key expired yesterday\x1b]0;x\a\nsecond line")
		}
	})
	r := run(t, g.ssh("gw", "whoami"), nil)
	r.expect(t, 255, "")
	if !strings.Contains(r.stderr, "sandgate: this key expired yesterday?]0;x? second line (SHA256:") {
		t.Errorf("stderr %q", r.stderr)
	}
}

// P15: an agent with many keys gets in with the last one, and is told nothing
// about the others once it is known that they are only companions.
func TestP15ManyKeys(t *testing.T) {
	g := newGateway(t)
	sock := filepath.Join(g.dir, "agent.sock")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	for i := range 10 {
		_, priv, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: priv, Comment: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	priv, err := gossh.ParseRawPrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Add(agent.AddedKey{PrivateKey: priv}); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(ring, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	for i, wantHelp := range []bool{true, false} {
		cmd := g.sshAs("none", "-o", "IdentitiesOnly=no", "-o", "IdentityAgent="+sock, "gw", "whoami")
		r := run(t, cmd, nil)
		r.expect(t, 0, "alice member ssh\n")
		if help := strings.Contains(r.stderr, "not registered"); help != wantHelp {
			t.Errorf("login %d: help shown: %v, want %v: %q", i, help, wantHelp, r.stderr)
		}
	}
}

// P3: certificates are refused, whoever signed them, and whatever they say.
func TestP03CertificatesAreOff(t *testing.T) {
	g := newGateway(t)
	for _, c := range []struct{ name, key, ca string }{
		{"signed by itself", "stranger", "stranger"},
		{"signed by a registered key", "stranger", "alice"},
		{"of a registered key", "alice", "alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := g.signer(c.key)
			cert := &gossh.Certificate{
				Key: key.PublicKey(), CertType: gossh.UserCert, KeyId: "x", ValidBefore: gossh.CertTimeInfinity,
				ValidPrincipals: []string{"alice", "box"},
			}
			if err := cert.SignCert(rand.Reader, g.signer(c.ca)); err != nil {
				t.Fatal(err)
			}
			signer, err := gossh.NewCertSigner(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			cfg := g.clientConfig("box", "alice")
			cfg.Auth = []gossh.AuthMethod{gossh.PublicKeys(signer)}
			var banner string
			cfg.BannerCallback = func(m string) error { banner += m; return nil }
			if conn, err := gossh.Dial("tcp", g.addr.String(), cfg); err == nil {
				_ = conn.Close()
				t.Error("the certificate was accepted")
			}
			if !strings.Contains(banner, "certificates are not accepted") {
				t.Errorf("banner %q", banner)
			}
		})
	}
}

// P6: connections that sit and wait lock nobody out, and go away.
func TestSilentConnectionsBlockNobody(t *testing.T) {
	g := newGateway(t)
	var silent []net.Conn
	for range 400 {
		c, err := net.Dial("tcp", g.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	began := time.Now()
	run(t, g.ssh("gw", "whoami"), nil).expect(t, 0, "alice member ssh\n")
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("the login took %v", d)
	}
	// The first of them have made room.
	_ = silent[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := new(bytes.Buffer).ReadFrom(silent[0]); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the oldest connection is still there")
	}
}

// P6: an unauthenticated connection ends in time, whatever it does.
func TestHandshakeTimeout(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Handshake = 300 * time.Millisecond })
	for _, first := range []string{"", "SSH-2.0-x\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "SSH-2.0-OpenSSH_9.9\r\n\x00\x00\x05\x00\x05"} {
		c, err := net.Dial("tcp", g.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := new(bytes.Buffer).ReadFrom(c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("after %q: the connection was not ended", first)
		}
		_ = c.Close()
	}
}

// What is no SSH is dropped.
func TestNoSSH(t *testing.T) {
	g := newGateway(t)
	for _, first := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", 300), "\x16\x03\x01\n", "SSH-1.5-old\r\n"} {
		c, err := net.Dial("tcp", g.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := new(bytes.Buffer).ReadFrom(c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%q was not dropped at once", first)
		}
		_ = c.Close()
	}
}

// P6: too many new connections of one address are turned away, others are not.
func TestConnectionRate(t *testing.T) {
	g := newGateway(t, func(c *Config) {
		c.Limits.LimitLoopback, c.Limits.Burst, c.Limits.Rate = true, 2, 0.001
	})
	for range 2 {
		run(t, g.ssh("gw", "whoami"), nil).expect(t, 0, "alice member ssh\n")
	}
	run(t, g.ssh("gw", "whoami"), nil).expect(t, 255, "")
	if !strings.Contains(g.log.String(), "too many new connections") {
		t.Error("the refusal is not in the log")
	}
}

// A principal with too many connections is told so.
func TestConnectionsPerPrincipal(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.ConnectionsPerPrincipal = 2 })
	first := g.dial("gw", "alice")
	g.dial("gw", "alice")
	r := run(t, g.ssh("gw", "whoami"), nil)
	r.expect(t, 255, "")
	if !strings.Contains(r.stderr, "you have more than 2 connections open; close some") {
		t.Errorf("stderr %q", r.stderr)
	}
	run(t, g.sshAs("bob", "gw", "whoami"), nil).expect(t, 0, "bob member ssh\n")
	_ = first.Close()
	eventually(t, "a free place", func() bool {
		return run(t, g.ssh("gw", "whoami"), nil).status == 0
	})
}

// P28: nothing that a client sends forges a line of the log.
func TestLogForgery(t *testing.T) {
	g := newGateway(t)
	user := "a\x1b]0;x\a\nlevel=ERROR msg=forged"
	c := g.dial(user, "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Output("whoami"); err != nil {
		t.Fatal(err)
	}
	log := g.log.String()
	if !strings.Contains(log, `forged`) || strings.Contains(log, "\nlevel=ERROR") || strings.ContainsAny(log, "\x1b\a") {
		t.Errorf("log %q", log)
	}
}
