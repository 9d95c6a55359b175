package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// These tests hold a terminal in their hands: they run the system's ssh on a
// pseudo terminal against a real server and a real sandbox, and do what a
// person does: type, resize, interrupt.

// gate is one running server with one sandbox, reached by ssh.
type gate struct {
	t    *testing.T
	dir  string
	args []string // of ssh, up to the destination
}

func newGate(t *testing.T) *gate {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skipf("needs ssh: %v", err)
	}
	dir, err := os.MkdirTemp("", "sg-")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, dir: dir}
	t.Cleanup(func() {
		g.sandgate("delete", "box")
		g.sandgate("stop")
		os.RemoveAll(dir)
	})
	key := filepath.Join(dir, "home", ".ssh", "id_ed25519")
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	// The first verb starts the server.
	if out, err := g.command("create", "--runtime", "host:latest", "--name", "box").CombinedOutput(); err != nil {
		t.Fatalf("create: %v: %s", err, out)
	}
	line, err := g.command("ssh", "box", "--show").Output()
	if err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`-p (\d+)`).FindSubmatch(line)
	if port == nil {
		t.Fatalf("no port in %s", line)
	}
	g.args = []string{"-F", "none", "-i", key, "-p", string(port[1]), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR",
		"-o", "UserKnownHostsFile=" + filepath.Join(dir, "known_hosts"), "box@127.0.0.1"}
	return g
}

func (g *gate) command(args ...string) *exec.Cmd {
	cmd := exec.Command(builtBinary, args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(g.dir, "home"), "SANDGATE_STATE="+filepath.Join(g.dir, "state"), "SSH_AUTH_SOCK=")
	return cmd
}

func (g *gate) sandgate(args ...string) {
	if out, err := g.command(args...).CombinedOutput(); err != nil {
		g.t.Errorf("sandgate %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// screen is an ssh client on a terminal.
type screen struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{} // has room for one: something was printed
	done chan struct{}
}

func (g *gate) open(t *testing.T, rows, cols uint16, command ...string) *screen {
	t.Helper()
	return g.openAs(t, "box", rows, cols, command...)
}

// openAs opens what a user name leads to.
func (g *gate) openAs(t *testing.T, user string, rows, cols uint16, command ...string) *screen {
	t.Helper()
	last := len(g.args) - 1
	args := slices.Concat([]string{"-tt"}, g.args[:last], []string{user + "@127.0.0.1"}, command)
	cmd := exec.Command("ssh", args...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	return watch(t, cmd, tty)
}

// watch reads what a client that was started shows on its terminal.
func watch(t *testing.T, cmd *exec.Cmd, tty *os.File) *screen {
	t.Helper()
	s := &screen{t: t, tty: tty, cmd: cmd, more: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			select {
			case s.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		tty.Close()
		<-s.done
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// expect waits until what was printed since the last call contains want.
func (s *screen) expect(want string) {
	s.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		i := strings.Index(s.seen.String(), want)
		if i >= 0 {
			s.seen.Next(i + len(want))
		}
		s.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-s.more:
		case <-limit:
			s.t.Fatalf("the screen never showed %q; it shows %q", want, s.text())
		}
	}
}

func (s *screen) send(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) exit() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.t.Fatalf("the session never ended; the screen shows %q", s.text())
	}
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func TestTerminal(t *testing.T) {
	g := newGate(t)

	t.Run("size and resize", func(t *testing.T) {
		s := g.open(t, 40, 100)
		s.send("PS1='% '; stty size; echo rea''dy\n")
		s.expect("40 100")
		s.expect("ready")
		s.send("sh -c 'trap \"stty size\" WINCH; echo tra''pping; until test \"$(stty size)\" = \"49 109\"; do sleep 0.05; done; sleep 0.05; echo sett''led'\n")
		s.expect("trapping\r\n")
		for i := range 30 { // a storm; the last one counts
			if err := pty.Setsize(s.tty, &pty.Winsize{Rows: uint16(20 + i), Cols: uint16(80 + i)}); err != nil {
				t.Fatal(err)
			}
		}
		s.expect("49 109") // the signal came, with the last size
		s.expect("settled\r\n")
		s.send("exit 6\n")
		if code := s.exit(); code != 6 {
			t.Errorf("exit status %d, want 6", code)
		}
	})

	// What is typed before a program has taken the terminal over belongs to the
	// shell, here as on any terminal: so each program says when it is there.
	t.Run("ctrl-c and ctrl-d", func(t *testing.T) {
		s := g.open(t, 24, 80)
		s.send("PS1='% '; sh -c 'echo be''gin; exec sleep 1000'\n")
		s.expect("begin\r\n")
		s.send("\x03")
		s.expect("% ")
		s.send("echo st''atus $?\n")
		s.expect("status 130\r\n")
		s.send("sh -c 'echo be''gin; exec cat'\n")
		s.expect("begin\r\n")
		s.send("ech\x7fho line\n")
		s.expect("\necho line\r\n") // what cat prints, not what was typed
		s.send("\x04")
		s.expect("% ")
		s.send("echo aft''er\n")
		s.expect("after\r\n")
		s.expect("% ") // before its prompt the shell does not own the terminal: an end of file would be lost
		s.send("\x04")
		if code := s.exit(); code != 0 {
			t.Errorf("exit status %d after ctrl-d, want 0", code)
		}
	})

	t.Run("job control", func(t *testing.T) {
		s := g.open(t, 24, 80)
		s.send("PS1='% '; sh -c 'echo be''gin; exec sleep 1000'\n")
		s.expect("begin\r\n")
		s.send("\x1a")
		s.expect("Stopped")
		s.send("bg; jobs; kill %1; wait; echo do''ne\n")
		s.expect("Running")
		s.expect("done\r\n")
		s.send("exit\n")
		s.exit()
	})

	t.Run("a full-screen program gets every byte", func(t *testing.T) {
		// A raw terminal: bare line feeds must arrive bare, all bytes as sent.
		s := g.open(t, 24, 80, `stty raw -echo; printf 'go\n'; head -c 256 | od -An -v -tu1 | tr -s ' \n' '  '; printf 'a\nb'`)
		s.expect("go\n")
		all := make([]byte, 256)
		var want strings.Builder
		for i := range all {
			all[i] = byte(i)
			fmt.Fprintf(&want, " %d", i)
		}
		// ssh's own escape is ~ after a newline only; 10 comes long before 126.
		if _, err := s.tty.Write(all); err != nil {
			t.Fatal(err)
		}
		s.expect(want.String())
		s.expect("a\nb")
		s.exit()
	})

	t.Run("the client dies", func(t *testing.T) {
		// A program on the whole screen, and behind it a shell.
		s := g.openAs(t, "box+ed", 24, 80)
		s.send("PS1='% '; printf '\\033[?1049h\\033[5;10Hone t''wo'; read x; printf '\\033[?1049l'; echo got $x; exit 5\n")
		s.expect("\x1b[5;10Hone two")
		s.cmd.Process.Kill()
		s.exit()
		back := g.openAs(t, "box+ed", 24, 80)
		back.expect("\x1b[?1049h")
		back.expect("one two")
		back.send("it\n")
		back.expect("\x1b[?1049l")
		back.expect("got it\r\n")
		if code := back.exit(); code != 5 {
			t.Errorf("exit status %d, want 5", code)
		}
	})
}
