package sshgw

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// P8: the status is the command's, with and without a terminal.
func TestP08ExitStatus(t *testing.T) {
	g := newGateway(t)
	plain := filepath.Join(g.boxes.workspace, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		status  int
	}{
		{"true", 0}, {"exit 7", 7}, {"no-such-command", 127}, {"./plain", 126}, {"exit 255", 255},
		{"kill -TERM $$", 255}, {"kill -KILL $$", 255}, {"sh -c 'kill -TERM $$'; exit $?", 143},
	} {
		for _, opts := range [][]string{{"-n"}, {"-tt"}} {
			r := run(t, g.ssh(append(opts, "box@gw", c.command)...), nil)
			if r.status != c.status {
				t.Errorf("%s %s: status %d, want %d: %q", opts[0], c.command, r.status, c.status, r.stderr)
			}
		}
	}
}

// P8: a death by signal is reported as one.
func TestP08ExitSignal(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	for _, name := range []string{"TERM", "KILL", "USR1", "XCPU"} {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run("kill -" + name + " $$")
		e, ok := errors.AsType[*gossh.ExitError](err)
		want := name
		if name == "XCPU" {
			want += "@openssh.com"
		}
		if !ok || e.Signal() != want {
			t.Errorf("kill -%s: %v", name, err)
		}
	}
}

// P8: over and over, no status and no byte is lost.
func TestP08ExitStatusIsNeverLost(t *testing.T) {
	g := newGateway(t)
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				opts := []string{"-n", "box@gw", "printf x; exit 7"}
				if i%2 == 1 {
					opts[0] = "-tt"
				}
				if r := run(t, g.ssh(opts...), nil); r.status != 7 || r.stdout != "x" {
					t.Errorf("round %d %s: status %d, stdout %q, stderr %q", i, opts[0], r.status, r.stdout, r.stderr)
				}
			}
		})
	}
	for i := range rounds {
		next <- i
	}
	close(next)
	wg.Wait()
}

// A status that is not known is never 0, and there is a reason.
func TestP08ExitUnknown(t *testing.T) {
	g := newGateway(t)
	cmd := g.ssh("-tt", "box@gw", "echo up; exec sleep 1000")
	out, errs := new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "up")
	g.boxes.loseConn()
	r := finish(t, cmd, out, errs)
	if r.status != exitUnknown || !strings.Contains(r.stderr, "sandgate: the connection to the sandbox was lost; what was started may still run\r\n") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	r = run(t, g.ssh("-n", "box@gw", "true"), nil)
	if r.status != exitNotStarted || !strings.HasPrefix(r.stderr, "sandgate: ") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// Trick 4: all data, then the status, then EOF, then CLOSE.
func TestP08OrderOfTheEnd(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := ch.SendRequest("exec", true, gossh.Marshal(struct{ S string }{"printf 'out'; printf 'err' >&2; exit 7"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	// The library queues requests and data apart; that the status comes before
	// the end of the data shows in it being there once EOF was read.
	out, _ := io.ReadAll(ch)
	select {
	case r := <-requests:
		if r == nil || r.Type != "exit-status" {
			t.Errorf("after EOF came %v", r)
		}
	default:
		t.Error("EOF came before the status")
	}
	errs, _ := io.ReadAll(ch.Stderr())
	if string(out) != "out" || string(errs) != "err" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	if r, open := <-requests; open {
		t.Errorf("a second request %v", r.Type)
	}
}

// P9: a client whose output is closed ends the command, because it says so to
// a server that calls itself OpenSSH.
func TestP09ClosedOutputEndsTheCommand(t *testing.T) {
	g := newGateway(t)
	for _, dest := range [][]string{{"box@gw", "yes"}, {"gw", "flood"}} {
		for _, n := range []string{"-n", "-T"} {
			cmd := g.ssh(append([]string{n}, dest...)...)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout = w
			if n == "-T" { // an open standard input holds nothing back
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
				t.Error(err)
			}
			_ = r.Close()
			finish(t, cmd, new(syncBuffer), new(syncBuffer))
		}
	}
}

// P10: standard input.
func TestP10StandardInput(t *testing.T) {
	g := newGateway(t)
	t.Run("open input holds nothing back", func(t *testing.T) {
		cmd := g.ssh("box@gw", "true")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		finish(t, cmd, new(syncBuffer), new(syncBuffer)).expect(t, 0, "")
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
	})
	t.Run("end is passed on", func(t *testing.T) {
		run(t, g.ssh("box@gw", "wc -c"), strings.NewReader("abc")).expect(t, 0, "3\n")
		run(t, g.ssh("box@gw", "cat"), nil).expect(t, 0, "")
		run(t, g.ssh("-n", "box@gw", "cat"), nil).expect(t, 0, "")
	})
	t.Run("early exit with much input", func(t *testing.T) {
		big := io.LimitReader(rand.Reader, 200<<20)
		run(t, g.ssh("box@gw", "head -c1 >/dev/null; exit 3"), big).expect(t, 3, "")
	})
	t.Run("input closed by a command that goes on", func(t *testing.T) {
		cmd := g.ssh("box@gw", "exec <&-; echo closed; read x < go; exit 4")
		r := run(t, cmd, nil)
		if r.stdout != "closed\n" {
			t.Errorf("stdout %q", r.stdout)
		}
	})
}

// P27: a command that is too long for the kernel says so; one that is too long
// for the protocol costs its connection and nothing else.
func TestP27LongCommand(t *testing.T) {
	g := newGateway(t)
	for _, n := range []int{140_000, 1 << 20} {
		s, err := g.dial("box", "alice").NewSession()
		if err != nil {
			t.Fatal(err)
		}
		errs := new(syncBuffer)
		s.Stderr = errs
		err = s.Run("true #" + strings.Repeat("x", n))
		if err == nil || n < 1<<18 && (exitStatus(t, err) != 126 || !strings.Contains(errs.String(), "argument list too long")) {
			t.Errorf("%d bytes: %v, stderr %q", n, err, errs.String())
		}
	}
	run(t, g.ssh("-n", "box@gw", "exit 3"), nil).expect(t, 3, "")
}

// P25: without a terminal the session lasts as long as somebody holds the
// output, with one it ends with the shell. As sshd does it.
func TestP25BackgroundChild(t *testing.T) {
	g := newGateway(t)
	fifo := filepath.Join(g.boxes.workspace, "gate")
	mkfifo(t, fifo)
	cmd := g.ssh("-n", "box@gw", "(read x < gate; echo late) & echo x")
	out, errs := new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "x\n")
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	finish(t, cmd, out, errs).expect(t, 0, "x\nlate\n")

	run(t, g.ssh("-tt", "box@gw", "sleep 100 & echo x"), nil).expect(t, 0, "x\r\n")
}

// Whatever a guest says of an exit, the status is one of a process.
func TestHostileExit(t *testing.T) {
	for _, e := range []guest.Exit{{Code: -1}, {Code: 256}, {Code: 1 << 40}, {Signal: "X\n"}, {Signal: strings.Repeat("A", 1000)}} {
		var ch recordingChannel
		if err := sendExit(&ch, e); err != nil {
			t.Fatal(err)
		}
		if ch.name != "exit-status" || string(ch.payload) != "\x00\x00\x00\xfe" {
			t.Errorf("%+v was reported as %s %q", e, ch.name, ch.payload)
		}
	}
}

// recordingChannel records the last request.
type recordingChannel struct {
	gossh.Channel
	name    string
	payload []byte
}

func (c *recordingChannel) SendRequest(name string, _ bool, payload []byte) (bool, error) {
	c.name, c.payload = name, payload
	return true, nil
}
