package sshgw

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

func TestGate(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGate(Limits{HalfOpen: 6, HalfOpenPerSource: 3, Burst: 5, Rate: 1}.withDefaults(), func() time.Time { return now })
	var evicted []string
	enter := func(ip string) *waiting {
		return g.enter(tcp(ip), func() { evicted = append(evicted, ip) })
	}
	// The bucket: five at once, then one a second.
	for range 5 {
		if enter("192.0.2.1") == nil {
			t.Fatal("turned away before its time")
		}
	}
	if enter("192.0.2.1") != nil {
		t.Error("the sixth of an address was admitted")
	}
	if enter("192.0.2.2") == nil {
		t.Error("another address was turned away")
	}
	now = now.Add(time.Second)
	if enter("192.0.2.1") == nil || enter("192.0.2.1") != nil {
		t.Error("a second is worth one connection")
	}
	// Three half-open ones an address: the oldest made room, three times.
	if !slices.Equal(evicted, []string{"192.0.2.1", "192.0.2.1", "192.0.2.1"}) {
		t.Errorf("evicted %v", evicted)
	}
	// Six in all: the busiest address makes room.
	evicted = nil
	for i := range 2 {
		enter(fmt.Sprintf("198.51.100.%d", i))
	}
	if evicted != nil {
		t.Errorf("evicted %v without need", evicted)
	}
	w := enter("203.0.113.1")
	if !slices.Equal(evicted, []string{"192.0.2.1"}) {
		t.Errorf("evicted %v", evicted)
	}
	g.leave(w)
	g.leave(w)
	if g.open != 5 {
		t.Errorf("%d are open, want 5", g.open)
	}
	// One /64 is one address, and loopback is free.
	now = now.Add(time.Hour)
	for i := range 6 {
		if ok := enter(fmt.Sprintf("2001:db8::%d", i)) != nil; ok != (i < 5) {
			t.Errorf("address %d of a /64: admitted %v", i, ok)
		}
		if enter("127.0.0.1") == nil || enter("::1") == nil {
			t.Error("loopback was turned away")
		}
	}
	// Addresses that say nothing any more are forgotten.
	for i := range 3000 {
		now = now.Add(time.Second)
		g.leave(enter(fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	if n := len(g.sources); n > 1100 {
		t.Errorf("%d addresses are remembered", n)
	}
}

// The offer decides the cipher, and nobody is left without one.
func TestChooseCiphers(t *testing.T) {
	full := ciphers()
	gcm := []string{gossh.CipherAES128GCM, gossh.CipherAES256GCM}
	openssh := []string{gossh.CipherChaCha20Poly1305, "aes128-ctr", "aes256-ctr", gossh.CipherAES128GCM, gossh.CipherAES256GCM}
	for _, c := range []struct {
		name     string
		offer    *kexInit
		hardware bool
		want     []string
	}{
		{"OpenSSH", &kexInit{CiphersIn: openssh, CiphersOut: openssh}, true, gcm},
		{"no AES in hardware", &kexInit{CiphersIn: openssh, CiphersOut: openssh}, false, full},
		{"unknown offer", nil, true, full},
		{"chacha only", &kexInit{CiphersIn: openssh[:1], CiphersOut: openssh[:1]}, true, full},
		{"one direction", &kexInit{CiphersIn: openssh, CiphersOut: openssh[:3]}, true, full},
		{"one of them", &kexInit{CiphersIn: openssh[:4], CiphersOut: openssh[:4]}, true, gcm[:1]},
	} {
		if got := chooseCiphers(c.offer, c.hardware); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// negotiated returns the cipher that the OpenSSH client says it uses.
func negotiated(t *testing.T, g *gateway, opts []string) string {
	t.Helper()
	r := run(t, g.ssh(append(append([]string{"-v"}, opts...), "gw", "whoami")...), nil)
	r.expect(t, 0, "alice member ssh\n")
	_, rest, _ := strings.Cut(r.stderr, "kex: server->client cipher: ")
	cipher, _, _ := strings.Cut(rest, " ")
	return cipher
}

// A client gets in with any cipher of the hardened set, and with the fast one
// if it leaves the choice to us.
func TestCiphers(t *testing.T) {
	g := newGateway(t)
	if cipher := negotiated(t, g, nil); g.srv.fastAES && cipher != gossh.CipherAES128GCM {
		t.Errorf("without a wish: %s", cipher)
	}
	for _, c := range ciphers() {
		if got := negotiated(t, g, []string{"-c", c}); got != c {
			t.Errorf("-c %s: %s", c, got)
		}
	}
	for _, old := range [][]string{
		{"-c", "aes128-cbc"}, {"-c", "aes128-ctr"}, {"-c", "aes256-ctr", "-m", "hmac-sha1"}, {"-o", "KexAlgorithms=ecdh-sha2-nistp256"},
		{"-o", "KexAlgorithms=diffie-hellman-group14-sha1"},
	} {
		r := run(t, g.ssh(append(old, "gw", "whoami")...), nil)
		r.expect(t, 255, "")
	}
}
