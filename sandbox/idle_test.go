package sandbox_test

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// idleBox is a sandbox that is ended when it was idle for a minute.
func idleBox(w *world) sandbox.Sandbox {
	w.t.Helper()
	return w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Idle: time.Minute}})
}

// reapAfter lets time pass and ends what is due then.
func (w *world) reapAfter(d time.Duration) {
	w.t.Helper()
	w.now.advance(d)
	w.engine.Reap(w.t.Context())
}

// seen waits until the output of a session that was read has been counted: the
// idle time of the sandbox has begun anew.
func (w *world) seen(id string) {
	w.t.Helper()
	for {
		at, _, err := w.engine.As(alice).Countdown(w.t.Context(), id)
		must(w.t, err)
		if at.Sub(w.now.Now()) > 55*time.Second {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-w.t.Context().Done():
			w.t.Fatal("output is not counted")
		}
	}
}

// An open session counts by what goes through it and not by being open.
func TestIdleSession(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	stays := w.create(alice, sandbox.CreateRequest{})
	pr, pw := io.Pipe()
	p, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"cat"}}, guest.Output{Stdout: pw})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = p.Wait(t.Context()) // that it returns is enough
	}()
	echo := bufio.NewReader(pr)
	for range 3 {
		w.reapAfter(50 * time.Second)
		w.status(s.ID, sandbox.Idle)
		if _, err := io.WriteString(p, "key\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := echo.ReadString('\n'); err != nil || line != "key\n" {
			t.Fatalf("echo %q, %v", line, err)
		}
	}
	at, why, err := w.engine.As(alice).Countdown(t.Context(), s.ID)
	if left := at.Sub(w.now.Now()); err != nil || why != "idle for 1m" || left > time.Minute || left < 59*time.Second {
		t.Errorf("countdown %s (%q, %v)", left, why, err)
	}
	w.seen(s.ID)
	for range 10 { // the echo may be counted a moment after it was read
		w.reapAfter(2 * time.Minute)
	}
	if got := w.status(s.ID, sandbox.Terminated); !strings.Contains(got.StatusReason, "idle for 1m") {
		t.Errorf("reason %q", got.StatusReason)
	}
	<-gone
	w.status(stays.ID, sandbox.Idle)
	if at, why, err := w.engine.As(alice).Countdown(t.Context(), stays.ID); err != nil || !at.IsZero() || why != "" {
		t.Errorf("countdown without a timeout: %s, %q, %v", at, why, err)
	}
}

// Output is activity, too, although nobody types.
func TestIdleSessionThatPrints(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	w.exec(alice, s.ID, "mkfifo", "go")
	pr, pw := io.Pipe()
	_, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Script: "exec 3<>go; while read x <&3; do echo $x; done"}, guest.Output{Stdout: pw})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(pr)
	for range 3 {
		w.now.advance(50 * time.Second)
		feed, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Script: "echo tick >go"}, guest.Output{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := feed.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.now.advance(50 * time.Second) // the output comes so much later
		if line, err := lines.ReadString('\n'); err != nil || line != "tick\n" {
			t.Fatalf("printed %q, %v", line, err)
		}
		w.seen(s.ID)
	}
	w.reapAfter(50 * time.Second)
	w.status(s.ID, sandbox.Idle)
}

func TestIdleConnection(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	path := filepath.Join(w.host.Dir(s.ID), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	c, err := w.engine.As(alice).Dial(t.Context(), s.ID, "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		w.reapAfter(50 * time.Second)
		w.status(s.ID, sandbox.Idle)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.reapAfter(2 * time.Minute)
	w.status(s.ID, sandbox.Terminated)
}

// A command that runs counts, however silent; also for a server that has just
// come, and that is told of a sandbox only once per idle timeout.
func TestIdleExecution(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "1000"}, Timeout: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.reapAfter(time.Hour)
	w.status(s.ID, sandbox.Running)
	w.restart()
	w.reapAfter(time.Hour)
	w.status(s.ID, sandbox.Running)
	if at, _, err := w.engine.As(alice).Countdown(t.Context(), s.ID); err != nil || !at.IsZero() {
		t.Errorf("countdown of a running sandbox: %s, %v", at, err)
	}
	if err := w.engine.As(alice).Cancel(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	w.reapAfter(50 * time.Second)
	w.status(s.ID, sandbox.Idle)
	w.reapAfter(time.Minute)
	w.status(s.ID, sandbox.Terminated)
}

// What a session left behind in an earlier server does not count, but a server
// that has just come gives everybody a whole idle time.
func TestIdleAfterRestart(t *testing.T) {
	w := newWorld(t)
	s := idleBox(w)
	if _, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"sleep", "1000"}}, guest.Output{}); err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Hour)
	w.restart()
	w.reapAfter(50 * time.Second)
	w.status(s.ID, sandbox.Idle)
	due, err := w.store.Due(t.Context(), "fake", w.now.Now(), 10)
	if err != nil || len(due) != 0 {
		t.Errorf("it is still looked at: %d, %v", len(due), err)
	}
	w.reapAfter(time.Minute)
	w.status(s.ID, sandbox.Terminated)
}
