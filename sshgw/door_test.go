package sshgw

import (
	"errors"
	"io"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

func TestCommandTree(t *testing.T) {
	g := newGateway(t)
	for _, c := range []struct {
		name   string
		args   []string
		stdin  string
		status int
		stdout string
		stderr string
	}{
		{"start page", []string{"-T", "gw"}, "", 0, "usage: help\nmore\n", ""},
		{"identity", []string{"gw", "whoami"}, "", 0, "alice member ssh\n", ""},
		{"any free name", []string{"someone@gw", "whoami"}, "", 0, "alice member ssh\n", ""},
		{"status", []string{"gw", "exit", "7"}, "", 7, "", "going\n"},
		{"input", []string{"gw", "cat"}, "abc", 0, "abc", ""},
		{"words", []string{"gw", `args 'a b' "c\"d" e\ f '' ;x $HOME|y`}, "", 0, `["a b" "c\"d" "e f" "" ";x" "$HOME|y"]` + "\n", ""},
		{"unknown", []string{"gw", "create;", "rm", "-rf", "/"}, "", 2, "", "unknown command \"create;\"\n"},
		{"unclosed quote", []string{"gw", "create 'x"}, "", 255, "", "sandgate: the command has an opening ' without a closing one\n"},
		{"not UTF-8", []string{"gw", "args \xff"}, "", 255, "", "sandgate: the command is not valid UTF-8\n"},
		{"panic", []string{"gw", "panic"}, "", 255, "", "sandgate: something went wrong inside sandgate; its log has the cause\n"},
		{"terminal", []string{"-tt", "gw", "exit", "3"}, "", 3, "going\r\n", ""},
		{"terminal page", []string{"-tt", "gw"}, "", 0, "usage: help\r\nmore\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, g.ssh(c.args...), strings.NewReader(c.stdin))
			r.expect(t, c.status, c.stdout)
			if stderr := strings.TrimSuffix(r.stderr, "Connection to 127.0.0.1 closed.\r\n"); stderr != c.stderr {
				t.Errorf("stderr %q, want %q", stderr, c.stderr)
			}
		})
	}
}

// What a user name leads to (P2: a sandbox of somebody else looks like none).
func TestRouting(t *testing.T) {
	g := newGateway(t)
	g.register(g.newKey("root"), keys.Principal{ID: "root", Role: keys.Admin})
	const noSandbox = "sandgate: user: what comes before the + must be the id or the name of a sandbox: ssh -t <sandbox>+<session>@<gateway>\n"
	for _, c := range []struct {
		key, user string
		status    int
		stdout    string
		stderr    string
	}{
		{"alice", "sbx_alice", 0, "in\n", ""},
		{"alice", "box", 0, "in\n", ""},
		{"bob", "sbx_alice", 255, "", "sandgate: no sandbox \"sbx_alice\"\n"},
		{"alice", "sbx_gone", 255, "", "sandgate: no sandbox \"sbx_gone\"\n"},
		{"alice", "sbx_../..", 255, "", "sandgate: user: that is no sandbox id; ids look like sbx_4k2m7qxw3f5z\n"},
		{"alice", "SBX_Alice", 0, "in\n", ""},
		{"bob", "SBX_ALICE", 255, "", "sandgate: no sandbox \"sbx_alice\"\n"},
		{"alice", "+build", 255, "", noSandbox},
		{"alice", "+~root", 255, "", noSandbox},
		{"alice", "+", 255, "", noSandbox},
		{"alice", "box+root", 0, "in\n", ""},
		{"alice", "sbx_alice+~" + me(), 0, "in\n", ""},
		{"alice", "box+~nobody-there", 255, "", "sandgate: user: there is no user \"nobody-there\" in the sandbox\n"},
		{"alice", "box+dev", 255, "", "sandgate: a session needs a terminal: ssh -t box+dev@gw; to run a command without one, leave out \"+dev\"\n"},
		{"alice", "box+", 255, "", "sandgate: user: what follows the + must be a session's name of at most 64 letters, digits, '.', '_' and '-', or +~ and a user of the sandbox\n"},
		// Admins reach others by id only.
		{"root", "sbx_alice", 0, "in\n", ""},
		{"root", "box", 2, "", "unknown command \"echo\"\n"},
		{"bob", "box", 2, "", "unknown command \"echo\"\n"},
		{"bob", "box+dev", 255, "", "sandgate: a session needs a terminal: ssh -t box+dev@gw; to run a command without one, leave out \"+dev\"\n"},
		{"bob", "box+root", 255, "", "sandgate: no sandbox \"box\"\n"},
	} {
		t.Run(c.key+" "+c.user, func(t *testing.T) {
			r := run(t, g.sshAs(c.key, "-n", "-l", c.user, "gw", "echo in"), nil)
			r.expect(t, c.status, c.stdout)
			if r.stderr != c.stderr {
				t.Errorf("stderr %q, want %q", r.stderr, c.stderr)
			}
		})
	}
}

// A connection stays where it led first, whatever is created meanwhile.
func TestRoutingIsDecidedOnce(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box2", "alice")
	for range 2 {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Output("whoami")
		if err != nil || string(out) != "alice member ssh\n" {
			t.Fatalf("whoami: %q, %v", out, err)
		}
		g.boxes.setName("box2")
	}
}

func TestAPISubsystem(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-s", "gw", APISubsystem), strings.NewReader("ping"))
	r.expect(t, 0, "api of alice\nping")
}

// Other subsystems are refused, and the connection goes on.
func TestSubsystemRefused(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("netconf was accepted")
	}
	if out, err := s.Output("echo still here"); err != nil || string(out) != "still here\n" {
		t.Errorf("exec after the refusal: %q, %v", out, err)
	}
}

// Signals, size and Ctrl-C reach a command of the command tree.
func TestCommandTreeTerminal(t *testing.T) {
	g := newGateway(t)
	open := func(cmd string) (*gossh.Session, *syncBuffer, io.Writer) {
		s, err := g.dial("gw", "alice").NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out := new(syncBuffer)
		s.Stdout = out
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RequestPty("xterm-256color", 40, 100, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(cmd); err != nil {
			t.Fatal(err)
		}
		return s, out, in
	}
	s, out, _ := open("size")
	if err := s.Wait(); err != nil || out.String() != "xterm-256color 40 100\r\n" {
		t.Errorf("size: %q, %v", out.String(), err)
	}
	s, out, _ = open("resized")
	out.waitFor(t, "waiting")
	for rows := 50; rows <= 99; rows++ {
		if err := s.WindowChange(rows, 120); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Wait(); err != nil || !strings.HasSuffix(out.String(), "99 120\r\n") {
		t.Errorf("resized: %q, %v", out.String(), err)
	}
	s, out, in := open("wait")
	out.waitFor(t, "waiting")
	if _, err := io.WriteString(in, strings.Repeat("typed ahead ", 1000)+"\x03"); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, s.Wait()); got != 130 {
		t.Errorf("Ctrl-C: status %d, want 130", got)
	}
	s, out, in = open("cat")
	if _, err := io.WriteString(in, "line\r\x04"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil || out.String() != "line\r\n" {
		t.Errorf("Ctrl-D: %q, %v", out.String(), err)
	}
	s, out, _ = open("wait")
	out.waitFor(t, "waiting")
	if err := s.Signal(gossh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, s.Wait()); got != 130 {
		t.Errorf("SIGTERM: status %d, want 130", got)
	}
}

// A command that draws the screen itself gets and sends bytes as they are.
func TestCommandTreeRaw(t *testing.T) {
	g := newGateway(t)
	cmd := g.ssh("-tt", "gw", "raw")
	out, errs := &syncBuffer{}, &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "waiting\n") // what is typed before it is raw is not
	if _, err := io.WriteString(in, "a\r\x03\x04b\n"); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	finish(t, cmd, out, errs).expect(t, 0, "waiting\na\r\x03\x04b\n")
}

// exitStatus returns the status in the error of Session.Wait.
func exitStatus(tb testing.TB, err error) int {
	tb.Helper()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*gossh.ExitError](err)
	if !ok {
		tb.Fatalf("no exit status: %v", err)
	}
	return e.ExitStatus()
}
