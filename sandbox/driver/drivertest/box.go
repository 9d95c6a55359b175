package drivertest

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// box is a running sandbox and a connection to its guest.
type box struct {
	*env
	id   string
	conn *guest.Conn
}

// start starts the sandbox and connects to it.
func (b *box) start(t *testing.T) {
	t.Helper()
	if err := b.d.Start(ctx(t), b.id); err != nil {
		t.Fatalf("start %s: %s", b.id, causes(err))
	}
	b.conn = connect(t, b.d, b.id)
}

// stop stops the sandbox.
func (b *box) stop(t *testing.T, grace time.Duration) {
	t.Helper()
	if err := b.d.Stop(ctx(t), b.id, grace); err != nil {
		t.Fatalf("stop %s: %s", b.id, causes(err))
	}
}

// result is what a finished process left.
type result struct {
	stdout, stderr string
	exit           guest.Exit
}

// run runs a command to its end.
func (b *box) run(t *testing.T, cmd guest.Command, stdin string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.ID = newID()
	cmd.NoStdin = stdin == ""
	c := ctx(t)
	p, err := b.conn.Start(c, cmd, guest.Output{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatalf("run %q: %v", cmd.Args, err)
	}
	defer p.Close()
	if stdin != "" {
		if _, err := p.Write([]byte(stdin)); err != nil {
			t.Fatalf("write to %q: %v", cmd.Args, err)
		}
		if err := p.CloseWrite(); err != nil {
			t.Fatalf("end the input of %q: %v", cmd.Args, err)
		}
	}
	exit, err := p.Wait(c)
	if err != nil {
		t.Fatalf("wait for %q: %v", cmd.Args, err)
	}
	return result{stdout.String(), stderr.String(), exit}
}

// sh runs a script as root that must succeed and returns its trimmed output.
func (b *box) sh(t *testing.T, script string) string {
	t.Helper()
	r := b.try(t, script)
	if r.exit != (guest.Exit{}) {
		t.Fatalf("%q ended with %+v: %s%s", script, r.exit, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// try runs a script as root.
func (b *box) try(t *testing.T, script string) result {
	t.Helper()
	return b.run(t, guest.Command{Args: []string{"/bin/sh", "-c", script}}, "")
}

// until runs a script again and again until it succeeds.
func (b *box) until(t *testing.T, what, script string) {
	t.Helper()
	c := ctx(t)
	for b.try(t, script).exit.Status() != 0 {
		if c.Err() != nil {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// refuses fails the test when the script succeeds.
func (b *box) refuses(t *testing.T, script string) {
	t.Helper()
	if r := b.try(t, script); r.exit.Status() == 0 {
		t.Errorf("%q must fail in a sandbox, it said %q", script, r.stdout+r.stderr)
	}
}

// background starts a script that the caller ends, and waits until it has
// written "ready".
func (b *box) background(t *testing.T, script string) (*guest.Process, *screen) {
	t.Helper()
	out := newScreen()
	cmd := guest.Command{ID: newID(), Args: []string{"/bin/sh", "-c", script}}
	p, err := b.conn.Start(ctx(t), cmd, guest.Output{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatalf("start %q: %v", script, err)
	}
	t.Cleanup(func() { p.Close() })
	out.wait(t, "ready\n")
	return p, out
}

// ping fails the test when the guest does not answer.
func (b *box) ping(t *testing.T) {
	t.Helper()
	if err := b.conn.Ping(ctx(t)); err != nil {
		t.Errorf("%s does not answer: %v", b.id, err)
	}
}

// screen collects output and lets a test wait for some of it.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed and replaced at each write
}

func newScreen() *screen { return &screen{changed: make(chan struct{})} }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	close(s.changed)
	s.changed = make(chan struct{})
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// wait waits until the output contains want.
func (s *screen) wait(t testing.TB, want string) {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		s.mu.Lock()
		text, changed := s.text.String(), s.changed
		s.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-c.Done():
			t.Fatalf("%q did not come; the output is %q", want, text)
		}
	}
}

// reconnect connects to the guest of a box whose processes are being killed
// right now: a relay that is hit too is opened again.
func (b *box) reconnect(t testing.TB) *guest.Conn {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := b.dialAgain(c)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if c.Err() != nil {
			t.Fatalf("connect to the guest of %s: %s", b.id, causes(err))
		}
	}
}

// dialAgain tries once to get a connection that answers.
func (b *box) dialAgain(c context.Context) (*guest.Conn, error) {
	stream, err := b.d.Dial(c, b.id)
	if err != nil {
		return nil, err
	}
	conn, err := guest.Connect(c, stream)
	if err != nil {
		stream.Close()
		return nil, err
	}
	if err := conn.Ping(c); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
