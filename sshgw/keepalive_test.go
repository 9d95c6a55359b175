package sshgw

import (
	"io"
	"net"

	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// P21: a client that asks whether we are there gets an answer, whatever it
// asks, in the order it asked.
func TestP21ClientAsks(t *testing.T) {
	g := newGateway(t)
	for _, user := range []string{"box", "gw"} {
		c := g.dial(user, "alice")
		for range 3 {
			for _, name := range []string{"keepalive@openssh.com", "unknown@x", "no-more-sessions@openssh.com", ""} {
				if ok, _, err := c.SendRequest(name, true, []byte("payload")); ok || err != nil {
					t.Errorf("%q: %v, %v", name, ok, err)
				}
			}
		}
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := s.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
			t.Errorf("on a channel: %v, %v", ok, err)
		}
	}
}

// hole is a connection through which nothing goes any more once it is told so,
// and of which neither end hears.
type hole struct {
	listener net.Listener
	lost     atomic.Bool
	done     chan struct{}
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{listener: l, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		back := make(chan struct{})
		go func() { defer close(back); h.carry(near, far) }()
		h.carry(far, near)
		<-back
		_, _ = near.Close(), far.Close()
	}()
	t.Cleanup(func() { _ = l.Close(); <-h.done })
	return h
}

// carry copies until the connection is lost, and then only swallows.
func (h *hole) carry(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			if !h.lost.Load() {
				_ = dst.(*net.TCPConn).CloseWrite()
			}
			return
		}
		if !h.lost.Load() {
			_, _ = dst.Write(buf[:n])
		}
	}
}

// P21: a client whose packets vanish is given up, and what it ran is hung up.
func TestP21PacketsVanish(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Keepalive, c.Limits.KeepaliveMisses = 50*time.Millisecond, 2 })
	h := newHole(t, g.addr.String())
	host, port, _ := net.SplitHostPort(h.listener.Addr().String())
	cmd, pid := startMarked(t, g, []string{"-T", "-o", "HostName=" + host, "-p", port, "-o", "Port=" + port}, "echo pid=$$; exec sleep 1000")
	h.lost.Store(true)
	eventually(t, "the end of the process", func() bool { return !alive(pid) })
	g.log.waitFor(t, "ssh client does not answer")
	_ = cmd.Process.Kill()
}

// P21: signs of life keep a connection, but are no use of a channel: one
// through which nothing goes is closed, one that is used is not.
func TestP21KeepaliveIsNoActivity(t *testing.T) {
	g := newGateway(t, func(c *Config) {
		c.Limits.Keepalive, c.Limits.KeepaliveMisses = 10*time.Millisecond, 100
		c.Limits.SessionIdle = 400 * time.Millisecond
	})
	c := g.dial("box", "alice")
	stop, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_, _, _ = c.SendRequest("keepalive@openssh.com", true, nil)
			}
		}
	}()
	defer func() { close(stop); <-asked }()
	busy, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := busy.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Start("i=0; while [ $i -lt 30 ]; do echo .; sleep 0.05; i=$((i+1)); done; echo end"); err != nil {
		t.Fatal(err)
	}
	idle, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	said, err := idle.CombinedOutput("sleep 1000")
	if err == nil || !strings.Contains(string(said), "nothing was sent for too long") {
		t.Errorf("the idle session: %q, %v", said, err)
	}
	if all, err := io.ReadAll(out); err != nil || !strings.HasSuffix(string(all), "end\n") {
		t.Errorf("the busy session: %q, %v", all, err)
	}
	if err := busy.Wait(); err != nil {
		t.Error(err)
	}
}

// A forward through which nothing goes, and a connection without channels, are
// closed where that is asked for.
func TestUnusedIsClosed(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.ForwardIdle, c.Limits.Unused = 100*time.Millisecond, 300*time.Millisecond })
	c := g.dial("box", "alice")
	fc, err := c.Dial("tcp", sumServer(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fc.Read(make([]byte, 1)); err == nil {
		t.Error("an idle forward got data")
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("an unused connection goes on")
	}
	// One with a session in it is used.
	s, err := g.dial("box", "alice").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("sleep 0.7; echo here"); err != nil || string(out) != "here\n" {
		t.Errorf("%q, %v", out, err)
	}
}
