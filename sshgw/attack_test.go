package sshgw

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// Attacks from loopback. 127.0.0.0/8 has addresses enough: attackers come from
// one and the honest client from another, as they do on a network.

// scale is n, or a tenth of it when the tests are to be short.
func scale(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// remote has the gateway take loopback for a network like any other.
func remote(c *Config) { c.Limits.LimitLoopback = true }

// from returns a dialer whose connections come from an address of loopback.
func from(ip string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: patience}
}

// logsIn logs alice in from an address and runs a command, and returns how
// long that took.
func (g *gateway) logsIn(tb testing.TB, ip string) time.Duration {
	tb.Helper()
	began := time.Now()
	nc, err := from(ip).Dial("tcp", g.addr.String())
	if err != nil {
		tb.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(began.Add(patience))
	sc, chans, reqs, err := gossh.NewClientConn(nc, g.addr.String(), g.clientConfig("box", "alice"))
	if err != nil {
		tb.Fatalf("a registered key does not get in: %v", err)
	}
	c := gossh.NewClient(sc, chans, reqs)
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		tb.Fatal(err)
	}
	if out, err := s.Output("echo in"); err != nil || string(out) != "in\n" {
		tb.Fatalf("%q, %v", out, err)
	}
	return time.Since(began)
}

// packet frames a payload before anything is encrypted.
func packet(payload []byte) []byte {
	padding := 8 - (5+len(payload))%8
	if padding < 4 {
		padding += 8
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(payload)+padding))
	b = append(b, byte(padding))
	b = append(b, payload...)
	return append(b, make([]byte, padding)...)
}

// dheat is what asks for as many key exchanges as it is long, for next to
// nothing.
func dheat(t *testing.T) []byte {
	t.Helper()
	offer := gossh.Marshal(kexInit{
		Kex: []string{gossh.KeyExchangeCurve25519}, HostKey: []string{gossh.KeyAlgoED25519},
		CiphersIn: ciphers(), CiphersOut: ciphers(), MACsIn: macs(false), MACsOut: macs(false),
		CompressIn: []string{"none"}, CompressOut: []string{"none"}, LangIn: []string{}, LangOut: []string{},
	})
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := gossh.Marshal(struct {
		Public []byte `sshtype:"30"`
	}{key.PublicKey().Bytes()})
	return append([]byte("SSH-2.0-dheat\r\n"), append(packet(offer), packet(public)...)...)
}

// attack runs f again and again, n at a time, until the test ends.
func attack(t *testing.T, n int, f func()) (rounds func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				f()
				mu.Lock()
				total++
				mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func() int { mu.Lock(); defer mu.Unlock(); return total }
}

// P6: who sits and waits, however often, and who has the gateway compute key
// exchanges, keeps nobody out.
func TestP06Floods(t *testing.T) {
	g := newGateway(t, remote)
	quiet := g.logsIn(t, "127.0.0.1")
	t.Run("idle connections", func(t *testing.T) {
		n := scale(1000)
		for range n {
			nc, err := from("127.0.0.2").Dial("tcp", g.addr.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
		}
		t.Logf("a login takes %v beside %d idle connections, %v without", g.logsIn(t, "127.0.0.1"), n, quiet)
		g.srv.gate.mu.Lock()
		defer g.srv.gate.mu.Unlock()
		if g.srv.gate.open > g.srv.cfg.Limits.HalfOpen {
			t.Errorf("%d half-open connections", g.srv.gate.open)
		}
	})
	t.Run("key exchanges", func(t *testing.T) {
		b := dheat(t)
		rounds := attack(t, 8, func() {
			nc, err := from("127.0.0.3").Dial("tcp", g.addr.String())
			if err != nil {
				return
			}
			_, _ = nc.Write(b) // and never reads
			_ = nc.(*net.TCPConn).SetLinger(0)
			_ = nc.Close()
		})
		eventually(t, "the flood", func() bool { return rounds() > scale(2000) })
		t.Logf("a login takes %v beside a flood of %d key exchanges, %v without", g.logsIn(t, "127.0.0.1"), rounds(), quiet)
	})
}

// P6: a client that is not authenticated gets no more than a login takes.
func TestP06StrangersAreShort(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	nc, err := net.Dial("tcp", g.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(dheat(t)); err != nil {
		t.Fatal(err)
	}
	junk := make([]byte, 32<<10)
	sent := 0
	go func() { _, _ = io.Copy(io.Discard, nc) }()
	for sent < 64<<20 {
		n, err := nc.Write(junk)
		if sent += n; err != nil {
			break
		}
	}
	if sent >= 64<<20 {
		t.Errorf("%d bytes of a stranger were taken", sent)
	}
}

// openFiles is how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}

// P11: connections that are killed at any moment leave no goroutine and no
// descriptor behind.
func TestP11KilledAtRandom(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.ConnectionsPerPrincipal = 10000 })
	g.logsIn(t, "127.0.0.1")
	routines, files := runtime.NumGoroutine(), openFiles(t)
	n, at := scale(1000), mathrand.New(mathrand.NewPCG(1, 2))
	moments := make(chan time.Duration, n)
	for range n {
		moments <- time.Duration(at.Int64N(int64(60 * time.Millisecond)))
	}
	close(moments)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for d := range moments {
				nc, err := net.Dial("tcp", g.addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				killed := time.AfterFunc(d, func() { _ = nc.Close() })
				sc, chans, reqs, err := gossh.NewClientConn(nc, "", g.clientConfig("box", "alice"))
				if err == nil {
					c := gossh.NewClient(sc, chans, reqs)
					if s, err := c.NewSession(); err == nil {
						_ = s.RequestPty("xterm", 24, 80, nil)
						_ = s.Run("yes") // until the connection is killed
					}
					_ = c.Wait()
				}
				killed.Stop()
				_ = nc.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "the end of their goroutines", func() bool { return runtime.NumGoroutine() <= routines })
	eventually(t, "the end of their descriptors", func() bool { return openFiles(t) <= files })
	g.logsIn(t, "127.0.0.1")
}
