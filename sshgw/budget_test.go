package sshgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

// stuck opens a session whose command reads nothing.
func stuck(t *testing.T, c *gossh.Client) gossh.Channel {
	t.Helper()
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	if ok, err := ch.SendRequest("exec", true, gossh.Marshal(struct{ S string }{"sleep 1000"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return ch
}

// dribble writes in packets of one byte until the window is full or the
// connection ends; the packets take far more memory than the bytes.
func dribble(ch io.Writer, n int) {
	for range n {
		if _, err := ch.Write([]byte{'x'}); err != nil {
			return
		}
	}
}

// P13: what a client sends and nobody takes is bounded, also when it comes a
// byte at a time. The connection is ended; others go on.
func TestP13BytesPerConnection(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option, func(c *Config) { c.Limits.BytesPerConnection = 2 << 20 })
	honest, greedy := g.dial("box", "alice"), g.dial("box", "alice")
	// Some of what nobody takes is not too much.
	for range 2 {
		ch := stuck(t, honest)
		if _, err := ch.Write(make([]byte, 512<<10)); err != nil {
			t.Fatal(err)
		}
	}
	go dribble(stuck(t, greedy), 1<<20)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = greedy.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("a connection that holds too much goes on")
	}
	if r := trail.one(t, "refused", "connection"); !strings.Contains(r.Reason, "more than is taken") {
		t.Errorf("the record says %q", r.Reason)
	}
	s, err := honest.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("echo ok"); err != nil || string(out) != "ok\n" {
		t.Errorf("the honest one: %q, %v", out, err)
	}
}

// P13: the gateway as a whole opens no channel while it holds too much, and
// does again when it does not.
func TestP13BytesInAll(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Bytes, c.Limits.BytesPerConnection = 2<<20, 1<<30 })
	holder, other := g.dial("box", "alice"), g.dial("box", "bob")
	ch := stuck(t, holder)
	go dribble(ch, 1<<20)
	eventually(t, "a refusal", func() bool {
		fresh, requests, err := other.OpenChannel("session", nil)
		if err == nil {
			go gossh.DiscardRequests(requests)
			_ = fresh.Close()
			return false
		}
		e, ok := errors.AsType[*gossh.OpenChannelError](err)
		if !ok || e.Reason != gossh.ResourceShortage || !strings.Contains(e.Message, "holds too much data") {
			t.Fatal(err)
		}
		return true
	})
	_ = holder.Close()
	eventually(t, "a free place", func() bool {
		fresh, requests, err := other.OpenChannel("session", nil)
		if err != nil {
			return false
		}
		go gossh.DiscardRequests(requests)
		_ = fresh.Close()
		return true
	})
}

// What is read, in whatever pieces, does not add up.
func TestHeldIsWhatIsHeld(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.BytesPerConnection = 8 << 20 })
	c := g.dial("box", "alice")
	blocked := stuck(t, c)
	if _, err := blocked.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	data := string(noise(scale(200 << 20)))
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdin = strings.NewReader(data)
	if out, err := s.Output("wc -c"); err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(len(data)) {
		t.Fatalf("%q, %v", out, err)
	}
	typing, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, err := typing.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := typing.Start("cat >/dev/null"); err != nil {
		t.Fatal(err)
	}
	dribble(in, 20000)
	_ = in.Close()
	if err := typing.Wait(); err != nil {
		t.Fatal(err)
	}
	if held := g.srv.holdsNow(); held > 6<<20 {
		t.Errorf("%d bytes are held, of 1 MiB", held)
	}
}

// P13: a client that stops reading while yes runs costs the gateway nothing
// more, however long.
func TestP13StoppedReaderStaysFlat(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("yes"); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	if _, err := io.ReadFull(out, make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	// From here on nobody reads. The window is full when nothing comes any more.
	before, sent := int64(0), int64(-1)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for still := 0; still < 10; {
		<-tick.C
		now := wireOut(g)
		if still++; now != sent {
			still, sent, before = 0, now, heap()
		}
	}
	for range scale(50) {
		<-tick.C
	}
	if after, more := heap(), wireOut(g)-sent; after-before > 8<<20 || more > 1<<20 {
		t.Errorf("the heap grew by %d bytes, and %d bytes were sent", after-before, more)
	}
}

// wireOut is how much the gateway has sent on all connections.
func wireOut(g *gateway) (n int64) {
	g.srv.mu.Lock()
	defer g.srv.mu.Unlock()
	for c := range g.srv.conns {
		n += c.wire.out.Load()
	}
	return n
}

// P14: what a principal may have open counts over all their connections.
func TestP14PrincipalLimits(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.SessionsPerPrincipal, c.Limits.ForwardsPerPrincipal = 3, 2 })
	var open []gossh.Channel
	for i := range 5 {
		ch, requests, err := g.dial("box", "alice").OpenChannel("session", nil)
		if i < 3 {
			if err != nil {
				t.Fatal(err)
			}
			go gossh.DiscardRequests(requests)
			open = append(open, ch)
			continue
		}
		if e, ok := errors.AsType[*gossh.OpenChannelError](err); !ok || e.Reason != gossh.ResourceShortage || !strings.Contains(e.Message, "you have 3 sessions open already") {
			t.Errorf("session %d: %v", i, err)
		}
	}
	addr := sumServer(t)
	var conns []net.Conn
	for i := range 4 {
		nc, err := g.dial("box", "alice").Dial("tcp", addr)
		if (err == nil) != (i < 2) {
			t.Errorf("forward %d: %v", i, err)
		}
		if err == nil {
			conns = append(conns, nc)
		}
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
	if _, _, err := g.dial("gw", "bob").OpenChannel("session", nil); err != nil {
		t.Errorf("another principal: %v", err)
	}
	_ = open[0].Close()
	eventually(t, "a free place", func() bool {
		ch, requests, err := g.dial("box", "alice").OpenChannel("session", nil)
		if err != nil {
			return false
		}
		go gossh.DiscardRequests(requests)
		_ = ch.Close()
		return true
	})
}

// P14: a client that asks for channels without end and reads no answer is let
// go of.
func TestP14ManyOpens(t *testing.T) {
	g := newGateway(t, func(c *Config) {
		c.Limits.SessionsPerConnection, c.Limits.ForwardsPerConnection = 4, 4
		c.Recheck = func(ctx context.Context, _ keys.Principal) error { // takes its time
			<-ctx.Done()
			return ctx.Err()
		}
	})
	c := g.dial("box", "alice")
	for range 1000 {
		go func() {
			_, _, _ = c.OpenChannel("direct-tcpip", gossh.Marshal(struct {
				Host string
				Port uint32
				From string
				Org  uint32
			}{"127.0.0.1", 9, "", 0}))
		}()
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection goes on")
	}
}
