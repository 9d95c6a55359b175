package sshgw

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// failingListener fails for good.
type failingListener struct {
	net.Listener
	err error
}

func (l *failingListener) Accept() (net.Conn, error) { return nil, netClosed{l.err} }
func (l *failingListener) Close() error              { return nil }

// netClosed is an error of a closed listener.
type netClosed struct{ error }

func (netClosed) Is(target error) bool { return target == net.ErrClosed }

// P7: floods of requests of one channel, or of none, leave the other channels
// of the connection alone.
func TestP07Floods(t *testing.T) {
	window := gossh.Marshal(struct{ Cols, Rows, W, H uint32 }{100, 40, 0, 0})
	signal := gossh.Marshal(struct{ S string }{"USR1"})
	env := gossh.Marshal(struct{ N, V string }{"LC_X", strings.Repeat("x", 1000)})
	open := func(t *testing.T, c *gossh.Client) gossh.Channel {
		t.Helper()
		ch, requests, err := c.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go gossh.DiscardRequests(requests)
		return ch
	}
	send := func(t *testing.T, ch gossh.Channel, name string, payload []byte) {
		t.Helper()
		if _, err := ch.SendRequest(name, false, payload); err != nil {
			t.Fatal(err)
		}
	}
	pty := gossh.Marshal(struct {
		Term       string
		C, R, W, H uint32
		Modes      string
	}{"xterm", 80, 24, 0, 0, ""})
	for name, flood := range map[string]func(*testing.T, *gossh.Client){
		"resizes without a command": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			send(t, ch, "pty-req", pty)
			for range 500 {
				send(t, ch, "window-change", window)
			}
		},
		"resizes and signals of a command that does nothing": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			send(t, ch, "pty-req", pty)
			send(t, ch, "exec", gossh.Marshal(struct{ S string }{"trap '' USR1; sleep 1000"}))
			for range 500 {
				send(t, ch, "window-change", window)
				send(t, ch, "signal", signal)
			}
		},
		"signals to a finished command": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			if _, err := ch.SendRequest("exec", true, gossh.Marshal(struct{ S string }{"true"})); err != nil {
				t.Fatal(err)
			}
			for range 200 {
				if _, err := ch.SendRequest("signal", false, signal); err != nil {
					return // the channel was closed meanwhile
				}
			}
		},
		"environment": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			for range 10000 {
				send(t, ch, "env", env)
			}
		},
		"global requests": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			for range 1000 {
				if _, _, err := c.SendRequest("keepalive@x", false, nil); err != nil {
					t.Fatal(err)
				}
			}
		},
		"input that nobody reads": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			send(t, ch, "exec", gossh.Marshal(struct{ S string }{"sleep 1000"}))
			if _, err := ch.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		},
		"output to a window of nothing": func(t *testing.T, c *gossh.Client) {
			t.Helper()
			ch := open(t, c)
			send(t, ch, "exec", gossh.Marshal(struct{ S string }{"yes"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			c := g.dial("box", "alice")
			flood(t, c)
			began := time.Now()
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := s.Output("echo ok"); err != nil || string(out) != "ok\n" {
				t.Errorf("second channel: %q, %v", out, err)
			}
			t.Logf("the second channel took %v", time.Since(began))
		})
	}
}

// P14: there is a limit to sessions and forwards, and it is said.
func TestP14ChannelLimits(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.SessionsPerConnection, c.Limits.ForwardsPerConnection = 5, 3 })
	c := g.dial("box", "alice")
	var channels []gossh.Channel
	for i := range 20 {
		ch, requests, err := c.OpenChannel("session", nil)
		switch {
		case i < 5 && err != nil:
			t.Fatal(err)
		case i >= 5:
			e, ok := errors.AsType[*gossh.OpenChannelError](err)
			if !ok || e.Reason != gossh.ResourceShortage || !strings.Contains(e.Message, "this connection has 5 of these open already") {
				t.Fatalf("session %d: %v", i, err)
			}
			continue
		}
		go gossh.DiscardRequests(requests)
		channels = append(channels, ch)
	}
	_ = channels[0].Close()
	eventually(t, "a free place", func() bool {
		ch, requests, err := c.OpenChannel("session", nil)
		if err != nil {
			return false
		}
		go gossh.DiscardRequests(requests)
		_ = ch.Close()
		return true
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 6 {
		_, err := c.Dial("tcp", l.Addr().String())
		if e, refused := errors.AsType[*gossh.OpenChannelError](err); refused != (i >= 3) || refused && e.Reason != gossh.ResourceShortage {
			t.Errorf("forward %d: %v", i, err)
		}
	}
}

// Kinds of channels that are not served are refused.
func TestUnknownChannel(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	for _, name := range []string{"x11", "forwarded-tcpip", "auth-agent@openssh.com", "forwarded-streamlocal@openssh.com", "tun@openssh.com", ""} {
		_, _, err := c.OpenChannel(name, nil)
		if e, ok := errors.AsType[*gossh.OpenChannelError](err); !ok || e.Reason != gossh.UnknownChannelType {
			t.Errorf("%q: %v", name, err)
		}
	}
}
