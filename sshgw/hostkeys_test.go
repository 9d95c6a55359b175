package sshgw

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

func newSigner(tb testing.TB, kind string) gossh.Signer {
	tb.Helper()
	var private any
	var err error
	if kind == "rsa" {
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		_, private, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		tb.Fatal(err)
	}
	s, err := gossh.NewSignerFromKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// P20: a key can be replaced and nobody is asked. A client that has been there
// before learns the next keys, and goes on when they have taken the place of
// the one it knew.
func TestP20HostKeyRotation(t *testing.T) {
	next, other := newSigner(t, "ed25519"), newSigner(t, "rsa")
	g := newGateway(t, func(c *Config) { c.HostKeys = append(c.HostKeys, next, other) })
	known := filepath.Join(g.dir, "known_hosts")
	learn := []string{"-o", "UpdateHostKeys=yes", "-o", "HashKnownHosts=no"}
	lines := func() string {
		b, err := os.ReadFile(known)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run(t, g.ssh(append(learn, "gw", "whoami")...), nil).expect(t, 0, "alice member ssh\n")
	// It notes them at its leisure: another connection finds them noted.
	eventually(t, "the new keys in known_hosts", func() bool {
		run(t, g.ssh(append(learn, "gw", "whoami")...), nil).expect(t, 0, "alice member ssh\n")
		text := lines()
		for _, s := range []gossh.Signer{next, other} {
			if !strings.Contains(text, strings.TrimSpace(string(gossh.MarshalAuthorizedKey(s.PublicKey())))) {
				return false
			}
		}
		return true
	})
	if err := g.srv.SetHostKeys([]gossh.Signer{next, other}); err != nil {
		t.Fatal(err)
	}
	r := run(t, g.ssh("-v", "gw", "whoami"), nil)
	r.expect(t, 0, "alice member ssh\n")
	if !strings.Contains(r.stderr, gossh.FingerprintSHA256(next.PublicKey())) {
		t.Errorf("the new key was not used: %s", r.stderr)
	}
}

// Proofs are given for the server's own keys, of this connection, and for
// nothing else.
func TestHostKeyProofs(t *testing.T) {
	other := newSigner(t, "rsa")
	g := newGateway(t, func(c *Config) { c.HostKeys = append(c.HostKeys, other) })
	cfg := g.clientConfig("gw", "alice")
	cfg.HostKeyAlgorithms = []string{gossh.KeyAlgoED25519}
	c, err := gossh.Dial("tcp", g.addr.String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(blobs ...[]byte) (bool, []byte) {
		var payload []byte
		for _, b := range blobs {
			payload = append(payload, gossh.Marshal(struct{ Blob []byte }{b})...)
		}
		ok, answer, err := c.SendRequest("hostkeys-prove-00@openssh.com", true, payload)
		if err != nil {
			t.Fatal(err)
		}
		return ok, answer
	}
	mine := []gossh.PublicKey{other.PublicKey(), g.host.PublicKey()}
	ok, answer := ask(mine[0].Marshal(), mine[1].Marshal())
	for _, key := range mine {
		var next struct {
			Sig  []byte
			Rest []byte `ssh:"rest"`
		}
		if !ok || gossh.Unmarshal(answer, &next) != nil {
			t.Fatalf("no proof: %v %q", ok, answer)
		}
		answer = next.Rest
		sig := new(gossh.Signature)
		if err := gossh.Unmarshal(next.Sig, sig); err != nil {
			t.Fatal(err)
		}
		data := gossh.Marshal(struct {
			Magic         string
			Session, Blob []byte
		}{"hostkeys-prove-00@openssh.com", c.SessionID(), key.Marshal()})
		if err := key.Verify(data, sig); err != nil || sig.Format == gossh.KeyAlgoRSA {
			t.Errorf("%s: %v, %s", key.Type(), err, sig.Format)
		}
	}
	foreign := newSigner(t, "ed25519").PublicKey().Marshal()
	many := make([][]byte, maxProofs+1)
	for i := range many {
		many[i] = mine[1].Marshal()
	}
	for name, blobs := range map[string][][]byte{"foreign": {foreign}, "one of two": {mine[1].Marshal(), foreign}, "none": nil, "rubbish": {[]byte("x")}, "many": many} {
		if ok, _ := ask(blobs...); ok {
			t.Errorf("%s: a proof was given", name)
		}
	}
	if ok, _, err := c.SendRequest("hostkeys-prove-00@openssh.com", true, []byte{0, 0, 1}); ok || err != nil {
		t.Errorf("malformed: %v, %v", ok, err)
	}
}

// P20: with a certificate on the host key a client needs one line for every
// gateway, and asks nobody on first use.
func TestP20HostCertificate(t *testing.T) {
	authority := newSigner(t, "ed25519")
	key := newSigner(t, "ed25519")
	cert := &gossh.Certificate{
		Key: key.PublicKey(), CertType: gossh.HostCert, KeyId: "gw", ValidPrincipals: []string{"gw.example"}, ValidBefore: gossh.CertTimeInfinity,
	}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	certified, err := gossh.NewCertSigner(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, func(c *Config) { c.HostKeys = []gossh.Signer{certified, key} })
	trust := g.write("trust", fmt.Sprintf("@cert-authority *.example %s", gossh.MarshalAuthorizedKey(authority.PublicKey())))
	args := []string{"-o", "UserKnownHostsFile=" + trust, "-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=yes"}
	run(t, g.ssh(append(args, "-o", "HostKeyAlias=gw.example", "gw", "whoami")...), nil).expect(t, 0, "alice member ssh\n")
	r := run(t, g.ssh(append(args, "-o", "HostKeyAlias=other.example", "gw", "whoami")...), nil)
	r.expect(t, 255, "")
}
