package sshgw

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	gossh "golang.org/x/crypto/ssh"
)

// onTerminal starts a client on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd, rows, cols uint16) (*os.File, *syncBuffer) {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	out, read := new(syncBuffer), make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(out, f) // ends with EIO when the client is gone
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = f.Close()
	})
	return f, out
}

// P18: the last size counts, also when it comes before the command, after it,
// or by the hundred, and no size is none.
func TestP18Resize(t *testing.T) {
	g := newGateway(t)
	s, err := g.dial("box", "alice").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	out := new(syncBuffer)
	s.Stdout = out
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	size := func(rows, cols int) {
		if err := s.WindowChange(rows, cols); err != nil {
			t.Fatal(err)
		}
	}
	size(40, 100)
	if err := s.Start("stty size; while read x; do stty size; done"); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "40 100\r\n")
	for i := range 500 {
		size(50+i%7, 100+i)
	}
	size(61, 203)
	size(0, 0)
	// The size travels on a way of its own, so ask until it has arrived.
	eventually(t, "the last size", func() bool {
		_, err := io.WriteString(in, "\r")
		return err != nil || strings.Contains(out.String(), "\r\n61 203\r\n")
	})
	_ = in.Close()
	if _, err := io.WriteString(in, "\x04"); err == nil {
		t.Log("input was still open")
	}
	_ = s.Wait()
	if strings.Contains(out.String(), "\r\n0 0\r\n") {
		t.Error("the size became 0 0")
	}
	_ = s.WindowChange(10, 10) // after the end
}

// P18, P23 with the OpenSSH client on a terminal: its size, a resize, Ctrl-C,
// Ctrl-D and the modes of the terminal.
func TestP23Terminal(t *testing.T) {
	g := newGateway(t)
	f, out := onTerminal(t, g.ssh("-t", "box@gw", "exec sh"), 33, 111)
	typed := func(line string) {
		t.Helper()
		if _, err := io.WriteString(f, line); err != nil {
			t.Fatal(err)
		}
	}
	typed("PS1=_; stty size; echo term-$TERM\r")
	out.waitFor(t, "33 111\r\n")
	out.waitFor(t, "term-xterm\r\n")
	if err := pty.Setsize(f, &pty.Winsize{Rows: 44, Cols: 122}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new size", func() bool {
		typed("stty size\r")
		return strings.Contains(out.String(), "44 122\r\n")
	})
	typed("sh -c 'trap \"echo in\"$((1+1))\"terrupted; exit\" INT; echo r$((1+1))eady; while :; do sleep 0.05; done'\r")
	out.waitFor(t, "r2eady")
	typed("\x03")
	out.waitFor(t, "in2terrupted")
	typed("stty -opost; printf 'a\\nb\\nc'; stty opost; echo\r")
	out.waitFor(t, "a\nb\nc")
	typed("exit 9\r")
	out.waitFor(t, "closed.")
}

// P23: signals that the client sends reach a command without a terminal.
func TestP23Signals(t *testing.T) {
	g := newGateway(t)
	for _, name := range []gossh.Signal{gossh.SIGINT, gossh.SIGTERM, gossh.SIGUSR1} {
		s, err := g.dial("box", "alice").NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out := new(syncBuffer)
		s.Stdout = out
		if err := s.Start("trap 'echo got; exit 5' " + string(name) + "; echo ready; while :; do sleep 0.05; done"); err != nil {
			t.Fatal(err)
		}
		out.waitFor(t, "ready")
		if err := s.Signal(name); err != nil {
			t.Fatal(err)
		}
		if got := exitStatus(t, s.Wait()); got != 5 || !strings.Contains(out.String(), "got") {
			t.Errorf("%s: status %d, output %q", name, got, out.String())
		}
	}
	// What is no signal, and break, are refused and harm nothing.
	s, err := g.dial("box", "alice").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StdinPipe(); err != nil { // stays open: the command reads until it is told otherwise
		t.Fatal(err)
	}
	if err := s.Start("read x; exit 6"); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ name, payload string }{
		{"signal", "\x00\x00\x00\x03BAD"}, {"signal", "\x00"}, {"break", "\x00\x00\x00\x01"}, {"x11-req", ""},
		{"auth-agent-req@openssh.com", ""}, {"pty-req", ""}, {"exec", "\x00\x00\x00\x04true"}, {"what@is.this", ""},
	} {
		if ok, err := s.SendRequest(r.name, true, []byte(r.payload)); ok || err != nil {
			t.Errorf("%s %q: accepted %v, %v", r.name, r.payload, ok, err)
		}
	}
	in, err := s.SendRequest("signal", true, gossh.Marshal(struct{ S string }{"USR1"}))
	if !in || err != nil {
		t.Errorf("signal USR1: %v, %v", in, err)
	}
	if e, ok := errors.AsType[*gossh.ExitError](s.Wait()); !ok || e.Signal() != "USR1" {
		t.Errorf("the command ended with %v", e)
	}
}

// P24: the end of the input of a terminal is its end-of-file character.
func TestP24TerminalInputEnd(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-tt", "box@gw"), strings.NewReader("stty -echo; echo hi; exit 4\n"))
	if r.status != 4 || !strings.Contains(r.stdout, "hi\r\n") {
		t.Errorf("status %d, stdout %q", r.status, r.stdout)
	}
	r = run(t, g.ssh("-tt", "box@gw", "cat; exit 5"), strings.NewReader("line\n"))
	if r.status != 5 || !strings.Contains(r.stdout, "line\r\n") {
		t.Errorf("status %d, stdout %q", r.status, r.stdout)
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
