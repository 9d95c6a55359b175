package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Two share a session: both see all, the one who typed last decides on the
// size, and each knows of the other. Who watches does nothing.
func TestShare(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	one := w.session(alice, s.ID, request("main"))
	one.shows("ready")
	small := request("main")
	small.Command.TTY.Size, small.From = guest.Size{Rows: 20, Cols: 70}, "192.0.2.2"
	two := w.session(admin, s.ID, small)
	two.hears("alice (192.0.2.1) shares this session")
	one.hears("root (192.0.2.2) shares this session")
	two.types("size\n")
	one.shows("20 70")
	two.shows("20 70")
	one.types("size\n")
	two.shows("24 80")
	watch := request("main")
	watch.Mode, watch.From, watch.Command.TTY.Size = sandbox.ViewWatch, "192.0.2.3", guest.Size{Rows: 10, Cols: 10}
	three := w.session(alice, s.ID, watch)
	three.hears("root (192.0.2.2) shares this session")
	two.hears("alice (192.0.2.3) watches this session")
	three.types("not typed\n")
	must(t, three.proc.Resize(t.Context(), guest.Size{Rows: 5, Cols: 5}))
	must(t, three.proc.Signal(t.Context(), "KILL"))
	must(t, three.proc.CloseWrite())
	if err := three.proc.Kill(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("kill by who watches: %v", err)
	}
	rec := w.record(s.ID, "main", func(s sandbox.Session) bool { return len(s.Viewers) == 3 })
	if v := rec.Viewers[2]; v.Principal != "alice" || v.Mode != sandbox.ViewWatch || v.From != "192.0.2.3" || v.Since.IsZero() {
		t.Errorf("who watches is %+v", v)
	}
	two.leave()
	one.hears("root left")
	one.types("size\n")
	one.types("last one\n")
	three.shows("got last one")
	one.mu.Lock()
	if shown := one.shown.String(); strings.Contains(shown, "not typed") || strings.Contains(shown, "5 5") {
		t.Errorf("who watches had an effect: %q", shown)
	}
	one.mu.Unlock()
	alone := request("main")
	alone.Alone = true
	four := w.session(alice, s.ID, alone)
	if _, err := one.end(); !errors.Is(err, sandbox.ErrDetached) || !strings.Contains(err.Error(), "alice") {
		t.Errorf("the one before: %v", err)
	}
	w.record(s.ID, "main", func(s sandbox.Session) bool { return len(s.Viewers) == 2 })
	must(t, w.engine.As(alice).DetachSession(t.Context(), s.ID, "main"))
	for _, c := range []*terminal{three, four} {
		if _, err := c.end(); !errors.Is(err, sandbox.ErrDetached) {
			t.Errorf("detached: %v", err)
		}
	}
	w.record(s.ID, "main", is(sandbox.SessionDetached))
}

// Who asks for a user gets a session of that user or none. No user and root are
// the same.
func TestShareAsAnotherUser(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	one := w.session(alice, s.ID, request("main"))
	one.shows("ready")
	for _, mode := range []sandbox.ViewMode{sandbox.ViewControl, sandbox.ViewWatch} {
		r := request("main")
		r.Mode, r.Command.User = mode, "nobody"
		_, err := w.tryOpen(alice, s.ID, r, nil)
		if want := `user: session "main" runs as root, not as nobody`; !fault.Is(err, fault.State) || err.Error() != want {
			t.Errorf("%s as nobody: %v, want %q", mode, err, want)
		}
	}
	w.record(s.ID, "main", func(s sandbox.Session) bool { return len(s.Viewers) == 1 })
	same := request("main")
	same.Command.User = "root"
	w.session(alice, s.ID, same).leave()
}

// seqOutput is what the terminal prints for seq n.
func seqOutput(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%d\r\n", i+1)
	}
	return b.Bytes()
}

// One client that is slow holds the program back and misses nothing, also when
// somebody watches.
func TestSlowClientMissesNothing(t *testing.T) {
	const n = 300_000 // more than all buffers together
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", fmt.Sprintf("read go; seq %d; exit 5", n)}
	hold := make(chan struct{})
	c, err := w.tryOpen(alice, s.ID, r, hold)
	must(t, err)
	watch := request("main")
	watch.Mode = sandbox.ViewWatch
	other := w.session(alice, s.ID, watch)
	c.types("\n")
	other.shows("\r\n1000\r\n")
	close(hold)
	if exit, err := c.end(); err != nil || exit.Code != 5 {
		t.Fatalf("exit %+v, %v", exit, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	got := bytes.TrimPrefix(c.shown.Bytes(), []byte("\r\n"))
	if !bytes.Equal(got, seqOutput(n)) {
		t.Errorf("%d bytes came of %d", len(got), len(seqOutput(n)))
	}
}

// Who watches and is slow holds nobody back, and gets a screen instead of
// garbage.
func TestSlowWatcherIsRedrawn(t *testing.T) {
	const n = 600_000
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", fmt.Sprintf("read go; seq %d; read go", n)}
	c := w.session(alice, s.ID, r)
	watch := request("main")
	watch.Mode = sandbox.ViewWatch
	hold := make(chan struct{})
	slow, err := w.tryOpen(alice, s.ID, watch, hold)
	must(t, err)
	c.types("\n")
	last := fmt.Sprintf("\r\n%d\r\n", n)
	c.shows(last)
	close(hold)
	slow.shows(last)
	slow.mu.Lock()
	shown := slow.shown.String()
	slow.mu.Unlock()
	// The first one is of a screen on which nothing was yet.
	drawn := shown[strings.LastIndex(shown, "\x1b[?25l\x1b[0m\x1b[24;1H\n")+1:]
	lines := strings.Split(drawn, "\r\n")
	if len(lines) < 10 || len(shown) > 4<<20 {
		t.Fatalf("%d bytes without a redraw", len(shown))
	}
	for _, line := range lines[1:9] {
		if n, err := strconv.Atoi(line); err != nil || n > 600_000 {
			t.Errorf("garbage: %q", line)
		}
	}
}

// A program on the whole screen is there again, and the terminal that leaves is
// put in order.
func TestFullScreenProgram(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", `printf 'shell\r\n\033[?1049h\033[?1h\033[?2004h\033[2;3H\033[31mfull screen\033[?25l'; read go; printf '\033[?1049l\033[?25hback'; read go`}
	c := w.session(alice, s.ID, r)
	c.shows("full screen")
	must(t, w.engine.As(alice).DetachSession(t.Context(), s.ID, "main"))
	if _, err := c.end(); !errors.Is(err, sandbox.ErrDetached) {
		t.Error(err)
	}
	c.mu.Lock()
	left := c.shown.String()
	c.mu.Unlock()
	left = left[strings.Index(left, "full screen"):]
	for _, want := range []string{"\x1b[?1049l", "\x1b[?1l", "\x1b[?2004l", "\x1b[?25h", "\x1b[0m"} {
		if !strings.Contains(left, want) {
			t.Errorf("after leaving, no %q in %q", want, left)
		}
	}
	back := w.session(alice, s.ID, request("main"))
	back.until("the screen", func(shown string, _ []string) bool {
		_, alt, ok := strings.Cut(shown, "\x1b[?1049h")
		return ok && strings.Contains(shown, "shell") && strings.Contains(alt, "full") && strings.Contains(alt, "\x1b[?2004h")
	})
	back.types("\n")
	back.shows("back")
}
