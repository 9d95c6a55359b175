package guest_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// sandbox is an agent inside this process, with real processes of this host.
type sandbox struct {
	agent     *agent.Agent
	workspace string
}

func newSandbox(t testing.TB, change func(*agent.Config)) *sandbox {
	t.Helper()
	cfg := agent.Config{Workspace: t.TempDir(), Version: "v1.2.3"}
	if change != nil {
		change(&cfg)
	}
	s := &sandbox{agent: agent.New(cfg), workspace: cfg.Workspace}
	t.Cleanup(s.agent.Shutdown)
	return s
}

// connect opens a connection of its own to the sandbox.
func (s *sandbox) connect(t testing.TB) *guest.Conn {
	t.Helper()
	host, inside := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.agent.Serve(context.Background(), inside)
	}()
	c, err := guest.Connect(context.Background(), host)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		c.Close()
		<-served
	})
	return c
}

func connect(t testing.TB) *guest.Conn { return newSandbox(t, nil).connect(t) }

// testContext ends well before the test binary gives up.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func run(t testing.TB, c *guest.Conn, cmd guest.Command, stdin io.Reader) (exit guest.Exit, stdout, stderr string) {
	t.Helper()
	ctx := testContext(t)
	if cmd.ID == "" {
		cmd.ID = "run"
	}
	var out, errs bytes.Buffer
	p, err := c.Start(ctx, cmd, guest.Output{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer p.Close()
	if stdin != nil {
		if _, err := io.Copy(p, stdin); err != nil {
			t.Fatalf("write stdin: %v", err)
		}
	}
	p.CloseWrite()
	exit, err = p.Wait(ctx)
	if err != nil {
		t.Fatalf("wait: %v (stdout %q, stderr %q)", err, out.String(), errs.String())
	}
	return exit, out.String(), errs.String()
}

func TestCommand(t *testing.T) {
	for _, tc := range []struct {
		name           string
		cmd            guest.Command
		stdin          string
		exit           guest.Exit
		stdout, stderr string
	}{
		{"arguments", guest.Command{Args: []string{"printf", "%s-%s", "a b", "c"}}, "", guest.Exit{}, "a b-c", ""},
		{"streams apart", guest.Command{Script: "echo out; echo err >&2; exit 7"}, "", guest.Exit{Code: 7}, "out\n", "err\n"},
		{"stdin", guest.Command{Args: []string{"cat"}}, "hello", guest.Exit{}, "hello", ""},
		{"signal", guest.Command{Script: "kill -TERM $$"}, "", guest.Exit{Signal: "TERM"}, "", ""},
		{"kill", guest.Command{Script: "kill -KILL $$"}, "", guest.Exit{Signal: "KILL"}, "", ""},
		{"not found", guest.Command{Args: []string{"no-such-command"}}, "", guest.Exit{Code: 127}, "", "sandgate: no-such-command: command not found\n"},
		{"no such file", guest.Command{Args: []string{"./no-such-file"}}, "", guest.Exit{Code: 127}, "", "sandgate: ./no-such-file: no such file or directory\n"},
		{"not executable", guest.Command{Args: []string{"/etc/passwd"}}, "", guest.Exit{Code: 126}, "", "sandgate: /etc/passwd: permission denied\n"},
		{"directory", guest.Command{Args: []string{"/etc"}}, "", guest.Exit{Code: 126}, "", "sandgate: /etc: is a directory\n"},
		{"no stdin", guest.Command{Args: []string{"readlink", "/proc/self/fd/0"}, NoStdin: true}, "", guest.Exit{}, "/dev/null\n", ""},
		{"environment", guest.Command{Script: "echo $A-$B", Env: []string{"A=1", "B=2", "A=3"}}, "", guest.Exit{}, "3-2\n", ""},
		{"directory", guest.Command{Args: []string{"pwd"}, Dir: "/usr"}, "", guest.Exit{}, "/usr\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exit, stdout, stderr := run(t, connect(t), tc.cmd, bytes.NewBufferString(tc.stdin))
			if exit != tc.exit || stdout != tc.stdout || stderr != tc.stderr {
				t.Errorf("got %+v %q %q, want %+v %q %q", exit, stdout, stderr, tc.exit, tc.stdout, tc.stderr)
			}
		})
	}
}
