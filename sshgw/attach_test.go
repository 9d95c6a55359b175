package sshgw

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// person is somebody at a terminal with an OpenSSH client.
type person struct {
	t   *testing.T
	cmd *exec.Cmd
	tty *os.File
	out *syncBuffer
	all chan struct{} // closed when out has all there will be
}

func (g *gateway) person(t *testing.T, args ...string) *person {
	t.Helper()
	p := &person{t: t, cmd: g.ssh(append([]string{"-tt"}, args...)...), out: new(syncBuffer), all: make(chan struct{})}
	var err error
	if p.tty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.all)
		_, _ = io.Copy(p.out, p.tty) // ends with EIO when the client is gone
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.all
		_ = p.cmd.Wait()
		_ = p.tty.Close()
	})
	return p
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.tty, text); err != nil {
		p.t.Fatal(err)
	}
}

// shell waits for a shell that answers, and returns its process id.
func (p *person) shell() int {
	p.t.Helper()
	p.types("PS1=_; stty -echo; echo 'p''id='$$.\r")
	p.out.waitFor(p.t, "pid=")
	eventually(p.t, "a process id", func() bool { return strings.Contains(p.afterLast("pid="), ".") })
	pid, err := strconv.Atoi(strings.SplitN(p.afterLast("pid="), ".", 2)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

func (p *person) afterLast(text string) string {
	s := p.out.String()
	return s[strings.LastIndex(s, text)+len(text):]
}

// ends waits for the end of the client.
func (p *person) ends() int {
	p.t.Helper()
	giveUp := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	if !giveUp.Stop() {
		p.t.Errorf("%v did not end in %v; it shows %q\n%s", p.cmd.Args, patience, p.out.String(), stacks())
	}
	<-p.all
	return p.cmd.ProcessState.ExitCode()
}

// only returns the one live session there is, once it has the status.
func (g *gateway) only(t *testing.T, want sandbox.SessionStatus) sandbox.Session {
	t.Helper()
	var list []sandbox.Session
	eventually(t, "one session that is "+string(want), func() bool {
		list, _ = g.alice().Sessions(t.Context(), "sbx_alice", false)
		return len(list) == 1 && list[0].Status == want
	})
	return list[0]
}

// However a client goes, its shell stays, and comes back with what it showed.
func TestSessionSurvivesItsClient(t *testing.T) {
	for name, vanish := range map[string]func(t *testing.T, g *gateway, p *person){
		"killed": func(_ *testing.T, _ *gateway, p *person) { _ = p.cmd.Process.Kill() },
		"disconnected by ~.": func(_ *testing.T, _ *gateway, p *person) {
			p.types("\r~.")
		},
		"terminal window closed": func(_ *testing.T, _ *gateway, p *person) { _ = p.tty.Close() },
		"network gone": func(t *testing.T, g *gateway, _ *person) {
			t.Helper()
			g.srv.mu.Lock()
			defer g.srv.mu.Unlock()
			for c := range g.srv.conns {
				_ = c.wire.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			p := g.person(t, "box@gw")
			pid := p.shell()
			p.types("echo before-$((1+1))\r")
			p.out.waitFor(t, "before-2")
			vanish(t, g, p)
			s := g.only(t, sandbox.SessionDetached)
			if s.Name != "s1" || !alive(pid) {
				t.Fatalf("session %q; its shell lives: %v", s.Name, alive(pid))
			}
			back := g.person(t, "box+s1@gw")
			back.out.waitFor(t, "before-2")
			if again := back.shell(); again != pid {
				t.Errorf("the shell is %d, was %d", again, pid)
			}
			back.types("exit 7\r")
			if status := back.ends(); status != 7 {
				t.Errorf("status %d, want 7; it shows %q", status, back.out.String())
			}
		})
	}
}

// A window that is closed under a shell that started ssh: ssh sees the end of
// its input before it is killed.
func TestSessionSurvivesEndOfInput(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out := new(syncBuffer)
	s.Stdout = out
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(in, "echo u$((0))p\r")
	out.waitFor(t, "u0p")
	_ = in.Close()
	_ = c.Close()
	g.only(t, sandbox.SessionDetached)
}

// What runs without a session's name goes with its client, terminal or not
// (TestP11VanishedClient); under a name it stays.
func TestNamedCommandSurvives(t *testing.T) {
	g := newGateway(t)
	p := g.person(t, "box+build@gw", "echo pid=$$.; read x; echo got-$x; exit 5")
	p.out.waitFor(t, "pid=")
	_ = p.cmd.Process.Kill()
	if s := g.only(t, sandbox.SessionDetached); s.Name != "build" {
		t.Errorf("the session is called %q", s.Name)
	}
	back := g.person(t, "box+build@gw")
	back.out.waitFor(t, "pid=")
	back.types("it\r")
	back.out.waitFor(t, "got-it")
	if status := back.ends(); status != 5 {
		t.Errorf("status %d, want 5", status)
	}
}

// A session has a terminal; tools that have none are told.
func TestSessionNeedsTerminal(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-n", "box+dev@gw", "echo in"), nil)
	r.expect(t, exitNotStarted, "")
	if want := "sandgate: a session needs a terminal: ssh -t box+dev@gw; to run a command without one, leave out \"+dev\"\n"; r.stderr != want {
		t.Errorf("stderr %q, want %q", r.stderr, want)
	}
}

// Who may run one command does not get into a session, where others run.
func TestForcedCommandTakesUpNoSession(t *testing.T) {
	g := newGateway(t)
	g.register(g.newKey("bound"), keys.Principal{ID: "alice", Role: keys.Member, Limits: keys.SessionLimits{Command: "echo forced"}})
	p := g.person(t, "box+dev@gw")
	p.shell()
	for _, args := range [][]string{{"-tt", "box+dev@gw"}, {"-tt", "box+dev@gw", "true"}, {"-tt", "box+new@gw"}} {
		r := run(t, g.sshAs("bound", args...), strings.NewReader("echo in\n"))
		if r.status != exitNotStarted || r.stdout != "" || !strings.Contains(r.stderr, "sandgate: your key runs one command and takes up no session") {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	run(t, g.sshAs("bound", "-tt", "box@gw"), strings.NewReader("")).expect(t, 0, "forced\r\n")
	p.types("exit\r")
	p.ends()
}

// Two clients share a session; a third takes it for itself.
func TestSharedSession(t *testing.T) {
	g := newGateway(t)
	one := g.person(t, "box+dev@gw")
	pid := one.shell()
	two := g.person(t, "box+dev@gw")
	two.out.waitFor(t, "pid=")
	one.out.waitFor(t, "\x1b[22;2t\x1b]2;alice is here too\a")
	if again := two.shell(); again != pid {
		t.Fatalf("the second client has shell %d, the first %d", again, pid)
	}
	two.types("echo from-$((1+1))\r")
	one.out.waitFor(t, "from-2")
	one.types("echo from-$((0+1))\r")
	two.out.waitFor(t, "from-1")

	three := g.person(t, "-o", "SetEnv=SANDGATE_SESSION=alone", "box+dev@gw")
	three.out.waitFor(t, "pid=")
	for _, p := range []*person{one, two} {
		if status := p.ends(); status != 0 {
			t.Errorf("status %d of a detached client, want 0", status)
		}
		if want := "sandgate: alice took the session over\r\ndetached: dev; come back with: ssh -t box+dev@gw\r\n"; !strings.Contains(p.out.String(), want) {
			t.Errorf("it shows %q, which lacks %q", p.out.String(), want)
		}
	}
	if !strings.Contains(one.out.String(), dropTitle) {
		t.Error("the title was not brought back")
	}
	three.types("exit 3\r")
	if status := three.ends(); status != 3 {
		t.Errorf("status %d, want 3", status)
	}
}

// Who watches sees all, types to nobody, and leaves with Ctrl-C.
func TestWatchedSession(t *testing.T) {
	g := newGateway(t)
	one := g.person(t, "box+dev@gw")
	one.shell()
	watcher := g.person(t, "-o", "SetEnv=SANDGATE_SESSION=watch", "box+dev@gw")
	watcher.out.waitFor(t, "pid=")
	watcher.types("echo in''truder\rq\x04")
	one.types("echo show-$((1+1))\r")
	watcher.out.waitFor(t, "show-2")
	if got := g.only(t, sandbox.SessionAttached); got.Name != "dev" {
		t.Errorf("session %+v", got)
	}
	watcher.types("\x03")
	if status := watcher.ends(); status != 0 || !strings.Contains(watcher.out.String(), "sandgate: left dev; it goes on\r\n") {
		t.Errorf("status %d, it shows %q", status, watcher.out.String())
	}
	one.types("echo still-$((1+1))\r")
	one.out.waitFor(t, "still-2")
	if strings.Contains(one.out.String(), "intruder") {
		t.Error("what a watcher typed arrived")
	}
	one.types("exit\r")
	one.ends()
}

// A person is told what they have left behind, a script is not.
func TestLoginNotice(t *testing.T) {
	g := newGateway(t)
	for i := range 2 {
		p := g.person(t, "box@gw")
		p.shell()
		_ = p.cmd.Process.Kill()
		eventually(t, "a detached session", func() bool {
			s, err := g.alice().Session(t.Context(), "sbx_alice", "s"+strconv.Itoa(i+1))
			return err == nil && s.Status == sandbox.SessionDetached
		})
	}
	p := g.person(t, "box@gw")
	p.out.waitFor(t, "come back with")
	p.shell()
	shown := p.out.String()
	want := "sandgate: detached here: s2 (a moment), s1 (a moment); come back with: ssh -t box+s2@gw\r\n"
	if !strings.HasPrefix(shown, want) {
		// A busy machine makes seconds of the moments.
		if i, j := strings.Index(shown, "sandgate: detached here: s2 ("), strings.Index(shown, "pid="); i != 0 || j < i {
			t.Errorf("it shows %q, want it to begin with %q", shown, want)
		}
	}
	p.types("exit\r")
	p.ends()
	r := run(t, g.ssh("-n", "box@gw", "echo in"), nil)
	if r.expect(t, 0, "in\n"); r.stderr != "" {
		t.Errorf("a command was told %q", r.stderr)
	}
}

// alice returns what alice may do.
func (g *gateway) alice() *box {
	b := &box{boxes: g.boxes}
	b.who.ID = "alice"
	return b
}

// P30: a gateway that stops leaves sessions alone, at once, and says how to
// come back.
func TestDrainLeavesSessions(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Drain = 10 * patience })
	p := g.person(t, "box@gw")
	pid := p.shell()
	g.stop()
	if status := p.ends(); status != exitUnknown {
		t.Errorf("status %d, want %d", status, exitUnknown)
	}
	if want := "sandgate: the gateway is stopping; session s1 goes on, come back with: ssh -t box+s1@gw\r\n"; !strings.Contains(p.out.String(), want) {
		t.Errorf("it shows %q, which lacks %q", p.out.String(), want)
	}
	<-g.stopped
	if !alive(pid) {
		t.Error("the shell has ended")
	}
}

// What a client wants of a session, in words that it may have got wrong.
func TestSessionWants(t *testing.T) {
	for _, c := range []struct {
		session, record, name string
		want                  sandbox.SessionRequest
		wrong                 string
	}{
		{"", "", "", sandbox.SessionRequest{}, ""},
		{"share", "0", "a", sandbox.SessionRequest{}, ""},
		{"alone", "1", "a", sandbox.SessionRequest{Alone: true, Record: true}, ""},
		{"watch", "", "a", sandbox.SessionRequest{Mode: sandbox.ViewWatch, Open: sandbox.OpenAttach}, ""},
		{"attach,alone", "", "a", sandbox.SessionRequest{Alone: true, Open: sandbox.OpenAttach}, ""},
		{"create", "input", "", sandbox.SessionRequest{Open: sandbox.OpenCreate, Record: true, RecordInput: true}, ""},
		{"watch", "", "", sandbox.SessionRequest{}, "say which session"},
		{"attach", "", "", sandbox.SessionRequest{}, "say which session"},
		{"alone,watch", "", "a", sandbox.SessionRequest{}, "choose one of"},
		{"share,alone", "", "a", sandbox.SessionRequest{}, "choose one of"},
		{"watch,create", "", "a", sandbox.SessionRequest{}, "nothing to watch"},
		{"wacth", "", "a", sandbox.SessionRequest{}, `SANDGATE_SESSION: "wacth" is none of`},
		{"", "yes", "a", sandbox.SessionRequest{}, `SANDGATE_RECORD: "yes" is none of`},
	} {
		got, err := wants{c.session, c.record}.request(c.name)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%+v: %v, want %q", c, err, c.wrong)
			}
			continue
		}
		if c.want.Name = c.name; c.want.Mode == "" {
			c.want.Mode = sandbox.ViewControl
		}
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%+v: got %+v, %v", c, got, err)
		}
	}
}

// What is wanted reaches the Engine and not the program.
func TestSessionWantsArrive(t *testing.T) {
	g := newGateway(t)
	p := g.person(t, "-o", "SetEnv=SANDGATE_SESSION=create SANDGATE_RECORD=input LC_X=1", "box+~"+me()+"+dev@gw", "env; echo do''ne")
	if status := p.ends(); status != 0 || !strings.Contains(p.out.String(), "LC_X=1") || strings.Contains(p.out.String(), "SANDGATE_") {
		t.Errorf("status %d, it shows %q", status, p.out.String())
	}
	if !strings.HasPrefix(p.out.String(), "sandgate: this session is recorded\r\n") {
		t.Errorf("it shows %q first", p.out.String())
	}
	g.boxes.mu.Lock()
	r := g.boxes.requests[0]
	g.boxes.mu.Unlock()
	if r.Open != sandbox.OpenCreate || !r.Record || !r.RecordInput || r.Command.User != me() || !strings.HasPrefix(r.From, "127.0.0.1:") {
		t.Errorf("the request is %+v", r)
	}
	two := g.person(t, "-o", "SetEnv=SANDGATE_SESSION=atach", "box+dev@gw")
	if status := two.ends(); status != exitNotStarted || !strings.Contains(two.out.String(), `sandgate: SANDGATE_SESSION: "atach" is none of watch, share, alone, create and attach`) {
		t.Errorf("status %d, it shows %q", status, two.out.String())
	}
	three := g.person(t, "-o", "SetEnv=SANDGATE_SESSION=watch", "box+none@gw")
	if status := three.ends(); status != exitNotStarted || !strings.Contains(three.out.String(), `no session "none"`) {
		t.Errorf("status %d, it shows %q", status, three.out.String())
	}
}

func me() string {
	out, err := exec.Command("id", "-un").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "root"
	}
	return strings.TrimSpace(string(out))
}
