package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// terminal is a client of a session: what is shown to it, and what it is told.
type terminal struct {
	w       *world
	proc    sandbox.SessionProcess
	mu      sync.Mutex
	shown   bytes.Buffer
	told    []string
	changed chan struct{}
	hold    chan struct{} // not nil: nothing is taken before it is closed
	ended   chan struct{}
	exit    guest.Exit
	err     error
}

func (c *terminal) Write(b []byte) (int, error) {
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown.Write(b)
	c.stir()
	return len(b), nil
}

func (c *terminal) stir() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *terminal) notice(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, line)
	c.stir()
}

// until waits for a condition on what was shown and told.
func (c *terminal) until(what string, ok func(shown string, told []string) bool) {
	c.w.t.Helper()
	timeout := time.After(time.Minute)
	for {
		c.mu.Lock()
		shown, told, changed := c.shown.String(), c.told, c.changed
		c.mu.Unlock()
		if ok(shown, told) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			c.w.t.Fatalf("%s did not come; shown %q, told %q", what, shown, told)
		}
	}
}

func (c *terminal) shows(text string) {
	c.w.t.Helper()
	c.until(fmt.Sprintf("%q", text), func(shown string, _ []string) bool { return strings.Contains(shown, text) })
}

func (c *terminal) hears(text string) {
	c.w.t.Helper()
	c.until(fmt.Sprintf("the notice %q", text), func(_ string, told []string) bool {
		return strings.Contains(strings.Join(told, "\n"), text)
	})
}

func (c *terminal) types(text string) {
	c.w.t.Helper()
	if _, err := io.WriteString(c.proc, text); err != nil {
		c.w.t.Fatal(err)
	}
}

// end waits for the end of the client's part.
func (c *terminal) end() (guest.Exit, error) {
	c.w.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		c.w.t.Fatal("the client's part does not end")
	}
	return c.exit, c.err
}

func (c *terminal) leave() {
	c.w.t.Helper()
	c.proc.Close()
	if _, err := c.end(); !errors.Is(err, sandbox.ErrDetached) {
		c.w.t.Fatalf("after leaving: %v", err)
	}
}

// program is a session's command that answers lines.
const program = `echo ready; while read -r a b; do case $a in size) stty size;; exit) exit $b;; *) echo "got $a $b";; esac; done`

func request(name string) sandbox.SessionRequest {
	return sandbox.SessionRequest{Name: name, From: "192.0.2.1", Command: guest.Command{
		Args: []string{"/bin/sh", "-c", program},
		TTY:  &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 24, Cols: 80}},
	}}
}

// tryOpen opens a session without waiting for anything to be shown.
func (w *world) tryOpen(who keys.Principal, ref string, r sandbox.SessionRequest, hold chan struct{}) (*terminal, error) {
	w.t.Helper()
	c := &terminal{w: w, changed: make(chan struct{}), hold: hold, ended: make(chan struct{})}
	r.Notice = c.notice
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	proc, err := w.engine.As(who).OpenSession(ctx, ref, r, guest.Output{Stdout: c})
	if err != nil {
		return nil, err
	}
	c.proc = proc
	go func() {
		defer close(c.ended)
		c.exit, c.err = proc.Wait(context.Background())
	}()
	w.t.Cleanup(func() { proc.Close() })
	return c, nil
}

func (w *world) session(who keys.Principal, ref string, r sandbox.SessionRequest) *terminal {
	w.t.Helper()
	c, err := w.tryOpen(who, ref, r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// record waits until the record of a session is as it should be.
func (w *world) record(ref, name string, ok func(sandbox.Session) bool) sandbox.Session {
	w.t.Helper()
	timeout := time.Now().Add(time.Minute)
	for {
		s, err := w.engine.As(admin).Session(w.t.Context(), ref, name)
		if err == nil && ok(s) {
			return s
		}
		if time.Now().After(timeout) {
			w.t.Fatalf("session %s is %+v, %v", name, s, err)
		}
	}
}

func is(status sandbox.SessionStatus) func(sandbox.Session) bool {
	return func(s sandbox.Session) bool { return s.Status == status }
}

// sessionEvents returns the events of sessions, as type and what matters.
func (w *world) sessionEvents(id string) string {
	w.t.Helper()
	evs, err := w.engine.As(admin).Events(w.t.Context(), id, 0, 0)
	must(w.t, err)
	var lines []string
	for _, ev := range evs {
		if kind, ok := strings.CutPrefix(string(ev.Type), "session:"); ok {
			lines = append(lines, kind+" "+ev.Principal)
		}
	}
	return strings.Join(lines, ", ")
}

func TestSession(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request(""))
	opened, created := c.proc.Session()
	if !created || opened.Name != "s1" || opened.Owner != "alice" || opened.Status != sandbox.SessionAttached {
		t.Errorf("opened %+v, %v", opened, created)
	}
	c.shows("ready")
	c.types("size\n")
	c.shows("24 80")
	must(t, c.proc.Resize(t.Context(), guest.Size{Rows: 30, Cols: 100}))
	c.types("size\n")
	c.shows("30 100")
	c.types("exit 3\n")
	if exit, err := c.end(); err != nil || exit.Code != 3 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	ended, err := w.engine.As(alice).Session(t.Context(), s.ID, opened.ID)
	must(t, err)
	if ended.Status != sandbox.SessionEnded || ended.Exit == nil || ended.Exit.Code != 3 || ended.EndedAt.IsZero() || len(ended.Viewers) != 0 {
		t.Errorf("ended %+v", ended)
	}
	if _, err := w.engine.As(alice).Session(t.Context(), s.ID, "s1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an ended one by its name: %v", err)
	}
	if got := w.sessionEvents(s.ID); got != "start alice, attach alice, end system" {
		t.Errorf("events %s", got)
	}
	w.forgotten(s.ID)
	// Its name is free again.
	again := w.session(alice, s.ID, request(""))
	if opened, _ := again.proc.Session(); opened.Name != "s1" {
		t.Errorf("the next one is %s", opened.Name)
	}
}

// Whoever comes back finds the screen as it was, and goes on.
func TestDetachAndAttach(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request("main"))
	c.types("one 1\n")
	c.shows("got one 1")
	c.leave()
	w.record(s.ID, "main", is(sandbox.SessionDetached))
	back := w.session(alice, s.ID, request("main"))
	if opened, created := back.proc.Session(); created || opened.Name != "main" || opened.Status != sandbox.SessionAttached {
		t.Errorf("attached to %+v, %v", opened, created)
	}
	back.shows("got one 1")
	back.types("two 2\n")
	back.shows("got two 2")
	back.types("exit 0\n")
	if exit, err := back.end(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if got := w.sessionEvents(s.ID); got != "start alice, attach alice, detach alice, attach alice, end system" {
		t.Errorf("events %s", got)
	}
}

func TestOpenWays(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	with := func(name string, change func(*sandbox.SessionRequest)) sandbox.SessionRequest {
		r := request(name)
		change(&r)
		return r
	}
	attach := func(r *sandbox.SessionRequest) { r.Open = sandbox.OpenAttach }
	watch := func(r *sandbox.SessionRequest) { r.Mode = sandbox.ViewWatch }
	create := func(r *sandbox.SessionRequest) { r.Open = sandbox.OpenCreate }
	for _, c := range []struct {
		what string
		r    sandbox.SessionRequest
		code fault.Code
	}{
		{"attach to none", with("main", attach), fault.NotFound},
		{"watch none", with("main", watch), fault.NotFound},
		{"watch no name", with("", watch), fault.Invalid},
		{"attach to no name", with("", attach), fault.Invalid},
		{"no terminal", with("main", func(r *sandbox.SessionRequest) { r.Command.TTY = nil }), fault.Invalid},
		{"an unknown mode", with("main", func(r *sandbox.SessionRequest) { r.Mode = "x" }), fault.Invalid},
		{"an unknown way", with("main", func(r *sandbox.SessionRequest) { r.Open = "x" }), fault.Invalid},
		{"root", request("root"), fault.Invalid},
		{"a bad name", request("-x"), fault.Invalid},
		{"an id that is none", request("ses_aaaaaaaaaaaa"), fault.NotFound},
		{"a bad user", with("main", func(r *sandbox.SessionRequest) { r.Command.User = "nobody-of-that-name" }), fault.Invalid},
	} {
		if _, err := w.tryOpen(alice, s.ID, c.r, nil); !fault.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", c.what, err, c.code)
		}
	}
	if _, err := w.tryOpen(bob, s.ID, request("main"), nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	if list, err := w.engine.As(alice).Sessions(t.Context(), "", false); err != nil || len(list) != 0 {
		t.Errorf("live after all that: %+v, %v", list, err)
	}
	c := w.session(alice, s.ID, with("main", create))
	_, err := w.tryOpen(alice, s.ID, with("main", create), nil)
	wantCode(t, err, fault.Exists)
	opened, _ := c.proc.Session()
	byID := w.session(alice, s.ID, request(opened.ID))
	if also, created := byID.proc.Session(); created || also.ID != opened.ID {
		t.Errorf("by id: %+v", also)
	}
	if list, err := w.engine.As(bob).Sessions(t.Context(), "", true); err != nil || len(list) != 0 {
		t.Errorf("a stranger sees %+v, %v", list, err)
	}
}

// Ten clients open one name at once: one starts it, all are in it.
func TestOpenTogether(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	clients := make(chan *terminal, 10)
	for range 10 {
		go func() {
			c, err := w.tryOpen(alice, s.ID, request("main"), nil)
			if err != nil {
				t.Error(err)
			}
			clients <- c
		}()
	}
	starts := 0
	var all []*terminal
	for range 10 {
		c := <-clients
		if c == nil {
			t.FailNow()
		}
		if _, created := c.proc.Session(); created {
			starts++
		}
		all = append(all, c)
	}
	if starts != 1 {
		t.Errorf("%d were started", starts)
	}
	all[0].types("hello all\n")
	for _, c := range all {
		c.shows("got hello all")
	}
	all[9].types("exit 4\n")
	for _, c := range all {
		if exit, err := c.end(); err != nil || exit.Code != 4 {
			t.Errorf("exit %+v, %v", exit, err)
		}
	}
}

func outputTo(w io.Writer) guest.Output { return guest.Output{Stdout: w} }

func writeFile(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o600))
}

// waitFile waits until a program has made a file.
func waitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := os.Stat(path)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// processes asks the guest of a sandbox what it keeps.
func (w *world) processes(id string) []guest.Info {
	w.t.Helper()
	stream, err := fake.New(fake.Config{Host: w.host}).Dial(w.t.Context(), id)
	must(w.t, err)
	conn, err := guest.Connect(w.t.Context(), stream)
	must(w.t, err)
	defer conn.Close()
	list, err := conn.List(w.t.Context())
	must(w.t, err)
	return list
}
