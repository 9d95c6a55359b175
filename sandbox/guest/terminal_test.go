package guest_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
)

func TestTerminal(t *testing.T) {
	c := connect(t)
	for _, tc := range []struct {
		name string
		tty  guest.TTY
		cmd  guest.Command
		want string
	}{
		{"is one", guest.TTY{}, guest.Command{Script: "test -t 0 && test -t 1 && test -t 2 && echo yes"}, "yes\r\n"},
		{"both outputs", guest.TTY{}, guest.Command{Script: "echo out; echo err >&2"}, "out\r\nerr\r\n"},
		{"size", guest.TTY{Size: guest.Size{Rows: 50, Cols: 132}}, guest.Command{Script: "stty size"}, "50 132\r\n"},
		{"default size", guest.TTY{}, guest.Command{Script: "stty size"}, "24 80\r\n"},
		{"term", guest.TTY{Term: "vt220"}, guest.Command{Script: "echo $TERM"}, "vt220\r\n"},
		{"default term", guest.TTY{}, guest.Command{Script: "echo $TERM"}, "xterm\r\n"},
		{"modes", guest.TTY{Modes: map[uint8]uint32{53: 0, 72: 0, 1: 28, 128: 38400}}, guest.Command{Script: "stty -a | grep -o -e ' -echo ' -e ' -onlcr ' -e 'intr = ..'"}, "intr = ^\\\n -onlcr \n -echo \n"},
		{"controlling", guest.TTY{}, guest.Command{Script: "echo there >/dev/tty"}, "there\r\n"},
		{"not found", guest.TTY{}, guest.Command{Args: []string{"no-such"}}, "sandgate: no-such: command not found\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cmd.ID, tc.cmd.TTY = "tty", &tc.tty
			p, w := start(t, c, tc.cmd)
			wait(t, p)
			if w.String() != tc.want {
				t.Errorf("got %q, want %q", w.String(), tc.want)
			}
		})
	}
}

func startShell(t *testing.T, c *guest.Conn) (*guest.Process, *watcher) {
	t.Helper()
	p, w := start(t, c, guest.Command{ID: "shell", Args: []string{"bash", "--norc", "--noediting", "-i"}, TTY: &guest.TTY{}, Env: []string{"PS1=prompt> "}})
	w.waitFor(t, "prompt> ")
	return p, w
}

func typeLine(t *testing.T, p *guest.Process, line string) {
	t.Helper()
	if _, err := io.WriteString(p, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func TestTerminalResize(t *testing.T) {
	p, w := start(t, connect(t), guest.Command{ID: "x", Script: "trap 'signalled=yes' WINCH; while :; do now=$(stty size); [ \"$now\" = \"$old\" ] || echo \"size is $now $signalled\"; old=$now; sleep 0.01; done", TTY: &guest.TTY{}})
	ctx := testContext(t)
	w.waitFor(t, "size is 24 80")
	for _, step := range []struct {
		size guest.Size
		want string
	}{
		{guest.Size{Rows: 30, Cols: 100}, "size is 30 100"},
		{guest.Size{Rows: 31}, "size is 31 100"},
		{guest.Size{Cols: 101}, "size is 31 101"},
	} {
		if err := p.Resize(ctx, step.size); err != nil {
			t.Fatal(err)
		}
		w.waitFor(t, step.want)
	}
	if !strings.Contains(w.String(), "size is 31 101 yes") {
		t.Errorf("SIGWINCH did not come: %q", w.String())
	}
	if err := p.Resize(ctx, guest.Size{}); err != nil {
		t.Error(err)
	}
	if err := p.Hangup(ctx); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
}

// Ctrl-C and a signal reach the job in the foreground and not the shell.
func TestTerminalForeground(t *testing.T) {
	for name, interrupt := range map[string]func(*guest.Process) error{
		"Ctrl-C": func(p *guest.Process) error { _, err := p.Write([]byte{3}); return err },
		"INT":    func(p *guest.Process) error { return p.Signal(t.Context(), "INT") },
		"TERM":   func(p *guest.Process) error { return p.Signal(t.Context(), "TERM") },
	} {
		t.Run(name, func(t *testing.T) {
			p, w := startShell(t, connect(t))
			typeLine(t, p, "sh -c 'echo job is $((40+2)); exec sleep 1000'")
			w.waitFor(t, "job is 42")
			if err := interrupt(p); err != nil {
				t.Fatal(err)
			}
			typeLine(t, p, "echo status $?; exit 9")
			if exit := wait(t, p); exit.Code != 9 {
				t.Errorf("%+v", exit)
			}
			want := map[string]string{"Ctrl-C": "status 130", "INT": "status 130", "TERM": "status 143"}[name]
			if !strings.Contains(w.String(), want) {
				t.Errorf("got %q", w.String())
			}
		})
	}
}

// The end of the input is a character; the terminal stays open, and can be
// used again.
func TestTerminalEndOfFile(t *testing.T) {
	p, w := startShell(t, connect(t))
	typeLine(t, p, "stty -echo; cat; echo after $((1+1))")
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w.waitFor(t, "after 2")
	typeLine(t, p, "exit 8")
	if exit := wait(t, p); exit.Code != 8 {
		t.Errorf("%+v", exit)
	}
}

// The end of the shell is the end of the session, even though a job in the
// background has the terminal open, writes to it, and never ends.
func TestTerminalWithBackgroundJob(t *testing.T) {
	for name, job := range map[string]string{
		"silent":  "while [ -e alive ]; do sleep 0.01; done",
		"talking": "while [ -e alive ]; do echo x; sleep 0.01; done",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, nil)
			c := s.connect(t)
			alive := filepath.Join(s.workspace, "alive")
			if err := os.WriteFile(alive, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(alive)
			p, w := start(t, c, guest.Command{ID: name, Script: "trap '' HUP; setsid sh -c 'echo ready; " + job + "' & read line; echo last words; exit 3", TTY: &guest.TTY{}})
			w.waitFor(t, "ready")
			begin := time.Now()
			typeLine(t, p, "")
			exit := wait(t, p)
			if d := time.Since(begin); d > 3*time.Second {
				t.Errorf("took %v", d)
			}
			if exit.Code != 3 || !strings.Contains(w.String(), "last words") {
				t.Errorf("%+v %q", exit, w.String())
			}
		})
	}
}

// All that was written before the end arrives, to a slow reader too.
func TestTerminalOutputIsComplete(t *testing.T) {
	c := connect(t)
	p, w := start(t, c, guest.Command{ID: "seq", Args: []string{"seq", "50000"}, TTY: &guest.TTY{Modes: map[uint8]uint32{72: 0}}})
	wait(t, p)
	var want strings.Builder
	for i := 1; i <= 50000; i++ {
		fmt.Fprintln(&want, i)
	}
	if w.String() != want.String() {
		t.Errorf("%d bytes came, want %d", len(w.String()), want.Len())
	}
}

// A program that does not read its terminal blocks its input and nothing else.
func TestTerminalStuckInput(t *testing.T) {
	c := connect(t)
	p, w := start(t, c, guest.Command{ID: "deaf", Script: "stty raw -echo; echo ready; exec sleep 1000", TTY: &guest.TTY{}})
	w.waitFor(t, "ready")
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		p.Write(make([]byte, 8<<20))
	}()
	ctx := testContext(t)
	if err := p.Resize(ctx, guest.Size{Rows: 5, Cols: 5}); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(ctx, "TERM"); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Signal != "TERM" {
		t.Errorf("%+v", exit)
	}
	<-stuck
}
