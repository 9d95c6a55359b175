package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

func TestPID1(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	if h := c.Hello(); h.Protocol != wire.NewestVersion || len(h.BootID) != 16 {
		t.Errorf("hello %+v", h)
	}
	for _, tc := range []struct {
		name string
		cmd  guest.Command
		want string
	}{
		{"is the parent", guest.Command{Script: "echo $PPID"}, "1\n"},
		{"workspace", guest.Command{Script: "pwd; stat -c %a ."}, "/workspace\n1777\n"},
		{"environment of the image", guest.Command{Script: "echo $FROM_IMAGE $GOGC $PATH $HOME $USER $LOGNAME $SHELL"}, "yes /usr/bin:/bin:/dev/.sandgate/bin /root root root /bin/bash\n"},
		{"umask", guest.Command{Script: "umask"}, "0022\n"},
		// Signal 32 is glibc's own: posix_spawn, which make starts its commands
		// with, leaves it ignored, and nobody sends it.
		{"no signal ignored or blocked", guest.Command{Args: []string{"sed", "-n", "s/^SigIgn:\t*\\(0*\\)80000000$/SigIgn:\\100000000/; s/^Sig\\(Blk\\|Ign\\):\t*//p", "/proc/self/status"}}, "0000000000000000\n0000000000000000\n"},
		{"user", guest.Command{Script: "id; echo $HOME $SHELL; touch mine", User: "dev"}, "uid=1000(dev) gid=1000(dev) groups=1000(dev),29(audio)\n/home/dev /bin/sh\n"},
		{"no login shell", guest.Command{Script: "echo $0 $SHELL", User: "service"}, "bash /bin/bash\n"},
		{"session of its own", guest.Command{Args: []string{"sh", "-c", "set -- $(cat /proc/self/stat); [ $5 = $6 ] && [ $6 = $$ ] && echo yes"}}, "yes\n"},
		{"terminal", guest.Command{Script: "tty; stty size; stat -c %U $(tty)", User: "dev", TTY: &guest.TTY{Size: guest.Size{Rows: 11, Cols: 33}}}, "/dev/pts/0\r\n11 33\r\ndev\r\n"},
		{"descriptors", guest.Command{Script: "ls /proc/self/fd | tr '\\n' ' '"}, "0 1 2 3 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exit, out, errs := run(t, c, tc.cmd, nil)
			if exit.Status() != 0 || out != tc.want || errs != "" {
				t.Errorf("got %+v %q %q, want %q", exit, out, errs, tc.want)
			}
		})
	}
	t.Run("login shell", func(t *testing.T) {
		_, out, _ := run(t, c, guest.Command{}, strings.NewReader("echo $0\n"))
		if out != "-bash\n" {
			t.Errorf("got %q", out)
		}
	})
}

func TestPID1WithoutProc(t *testing.T) {
	c := startGuest(t, false).relay(t).conn
	if exit, out, errs := run(t, c, guest.Command{Script: "ls /proc; echo $PPID"}, nil); exit.Status() != 0 || out != "1\n" {
		t.Errorf("got %+v %q %q", exit, out, errs)
	}
}

// A container without the right to change the user still runs what root runs.
func TestPID1WithoutCapabilities(t *testing.T) {
	c := startGuest(t, true, "SANDGATE_GUEST_TEST_NO_SETUID=1").relay(t).conn
	if exit, out, _ := run(t, c, guest.Command{Script: "id -u"}, nil); exit.Status() != 0 || out != "0\n" {
		t.Errorf("root: %+v %q", exit, out)
	}
	_, err := c.Start(testContext(t), guest.Command{ID: "dev", Script: "id -u", User: "dev"}, guest.Output{})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), `switch to user "dev"`) {
		t.Errorf("another user: %v", err)
	}
	if list, err := c.List(testContext(t)); err != nil || len(list) != 0 {
		t.Errorf("left behind: %+v %v", list, err)
	}
}

func TestPID1DirectoryOfOthers(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	run(t, c, guest.Command{Script: "mkdir -m 700 /private"}, nil)
	exit, _, errs := run(t, c, guest.Command{Args: []string{"pwd"}, Dir: "/private", User: "dev"}, nil)
	if exit.Code != 126 || errs != "sandgate: working directory /private: permission denied for user dev\n" {
		t.Errorf("%+v %q", exit, errs)
	}
}

// A file that does not fit leaves nothing of it behind.
func TestPID1DiskFull(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	run(t, c, guest.Command{Script: "mkdir /small && mount -t tmpfs -o size=64k none /small"}, nil)
	err := c.WriteFile(testContext(t), "/small/file", 0o600, io.LimitReader(zeros{}, 8<<20))
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "write /small/file: no space left on device") {
		t.Errorf("%v", err)
	}
	if _, out, _ := run(t, c, guest.Command{Script: "ls -A /small"}, nil); out != "" {
		t.Errorf("left behind: %q", out)
	}
}

// Orphans become children of PID 1, which has never heard of them.
func TestPID1ReapsOrphans(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	for range 20 {
		run(t, c, guest.Command{Script: "for i in 1 2 3 4 5; do (setsid true & ) & done; exit 3"}, nil)
	}
	ctx := testContext(t)
	for {
		_, out, _ := run(t, c, guest.Command{Script: "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '"}, nil)
		if out == "0\n" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s zombies are left", strings.TrimSpace(out))
		}
	}
}

func TestPID1SurvivesSignals(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	for _, sig := range []string{"HUP", "INT", "QUIT", "ABRT", "SEGV", "USR1", "PIPE", "ALRM", "TSTP", "TTIN", "KILL"} {
		run(t, c, guest.Command{Script: "kill -" + sig + " 1"}, nil)
	}
	if exit, _, _ := run(t, c, guest.Command{Args: []string{"true"}}, nil); exit.Status() != 0 {
		t.Errorf("got %+v", exit)
	}
}

// Only root of the sandbox gets to speak to PID 1. The client waits for an
// answer: a relay whose input is at its end would exit 0 in any case.
func TestPID1PeerCheck(t *testing.T) {
	g := startGuest(t, true)
	c := g.relay(t).conn
	const offer = "sandgate-guest 1 1 1048576\n"
	ctx := testContext(t)
	ask := func(user string) (string, guest.Exit, string) {
		t.Helper()
		var out, errs lockedBuffer
		answered := make(chan struct{})
		w := writerFunc(func(b []byte) (int, error) {
			n, err := out.Write(b)
			if strings.HasSuffix(out.String(), "\n") {
				close(answered)
			}
			return n, err
		})
		p, err := c.Start(ctx, guest.Command{ID: "client-" + user, Args: []string{"/.sandgate/guest", "relay"}, User: user}, guest.Output{Stdout: w, Stderr: &errs})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := io.WriteString(p, offer); err != nil {
			t.Fatal(err)
		}
		go func() {
			select {
			case <-answered:
				p.Signal(ctx, "KILL")
			case <-ctx.Done():
			}
		}()
		exit, err := p.Wait(ctx)
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return out.String(), exit, errs.String()
	}
	if out, _, errs := ask("root"); !strings.Contains(out, `"protocol":1`) {
		t.Errorf("root was answered %q %q", out, errs)
	}
	if out, exit, errs := ask("dev"); out != "" || exit.Code != 1 || !strings.Contains(errs, "permission denied") {
		t.Errorf("another user: %q %+v %q", out, exit, errs)
	}
	run(t, c, guest.Command{Args: []string{"chmod", "666", agent.SocketPath}}, nil)
	if out, exit, _ := ask("dev"); out != "" || exit.Signal != "" {
		t.Errorf("another user, with the socket's mode changed: %q %+v", out, exit)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A relay dies in the middle of output; over the next one the output goes on
// at the very byte where it broke off.
func TestPID1RelayKilled(t *testing.T) {
	g := startGuest(t, true)
	r := g.relay(t)
	ctx := testContext(t)
	var got bytes.Buffer
	seen := make(chan struct{})
	gate := make(chan struct{})
	w := writerFunc(func(b []byte) (int, error) {
		got.Write(b)
		if got.Len() > 20_000 && seen != nil {
			close(seen)
			seen = nil
			<-gate
		}
		return len(b), nil
	})
	broken := seen
	p, err := r.conn.Start(ctx, guest.Command{ID: "seq", Script: "seq 1 20000; read line; seq 20001 40000; exit 9"}, guest.Output{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	<-broken
	r.kill(t)
	close(gate)
	if _, err := p.Wait(ctx); !errors.Is(err, guest.ErrLost) {
		t.Fatalf("wait: %v", err)
	}
	if p.Offset() != int64(got.Len()) {
		t.Fatalf("offset %d, but %d bytes came", p.Offset(), got.Len())
	}
	c := g.relay(t).conn
	if infos, err := c.List(ctx); err != nil || len(infos) != 1 || infos[0].ID != "seq" || infos[0].Exited || infos[0].Attached != 0 {
		t.Fatalf("list: %+v %v", infos, err)
	}
	p, err = c.Attach(ctx, "seq", p.Offset(), guest.Output{Stdout: &got})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p, "go on\n"); err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(ctx)
	if err != nil || exit.Code != 9 {
		t.Fatalf("%+v %v", exit, err)
	}
	var want bytes.Buffer
	for i := 1; i <= 40000; i++ {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) || p.Skipped() != 0 {
		t.Errorf("%d bytes came, want %d; skipped %d", got.Len(), want.Len(), p.Skipped())
	}
}

// A standard input that nobody reads must not hide the loss of the relay.
func TestPID1RelayKilledWithStuckInput(t *testing.T) {
	g := startGuest(t, true)
	r := g.relay(t)
	ctx := testContext(t)
	p, err := r.conn.Start(ctx, guest.Command{ID: "stuck", Args: []string{"sleep", "1000"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	filled := make(chan error, 1)
	go func() {
		_, err := p.Write(make([]byte, 16<<20)) // more than all buffers on the way hold
		filled <- err
	}()
	if err := r.conn.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	r.kill(t)
	if err := <-filled; err == nil {
		t.Error("16 MiB fit in")
	}
	c := g.relay(t).conn
	for {
		infos, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) == 1 && infos[0].Attached == 0 {
			break
		}
	}
	// And the next one can use the standard input.
	p, err = c.Attach(ctx, "stuck", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Hangup(ctx); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx); err != nil || exit.Signal != "HUP" {
		t.Errorf("%+v %v", exit, err)
	}
}

func TestPID1ManyRelays(t *testing.T) {
	g := startGuest(t, true)
	relays := make([]*relay, 8)
	for i := range relays {
		relays[i] = g.relay(t)
	}
	t.Run("parallel", func(t *testing.T) {
		for i, r := range relays {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for n := range 10 {
					cmd := guest.Command{ID: fmt.Sprintf("%d-%d", i, n), Script: fmt.Sprintf("cat; echo %d; exit %d", i, n)}
					in := strings.Repeat("x", 100_000)
					if exit, out, _ := run(t, r.conn, cmd, strings.NewReader(in)); exit.Code != n || out != fmt.Sprintf("%s%d\n", in, i) {
						t.Errorf("%+v, %d bytes", exit, len(out))
					}
				}
				if i%2 == 0 {
					r.kill(t)
				}
			})
		}
	})
	if exit, _, _ := run(t, relays[1].conn, guest.Command{Args: []string{"true"}}, nil); exit.Status() != 0 {
		t.Errorf("%+v", exit)
	}
}

// SIGTERM to PID 1 and Shutdown end everything, the stubborn included.
func TestPID1Shutdown(t *testing.T) {
	for name, end := range map[string]func(*realGuest, *guest.Conn) error{
		"signal":  func(g *realGuest, _ *guest.Conn) error { return syscall.Kill(g.pid, syscall.SIGTERM) },
		"request": func(_ *realGuest, c *guest.Conn) error { return c.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := startGuest(t, true)
			c := g.relay(t).conn
			ctx := testContext(t)
			ready := make(chan struct{}, 3)
			say := guest.Output{Stdout: writerFunc(func(b []byte) (int, error) {
				if bytes.Contains(b, []byte("ready")) {
					ready <- struct{}{}
				}
				return len(b), nil
			})}
			for id, cmd := range map[string]guest.Command{
				"gentle":   {Script: "trap 'echo > /workspace/gentle; exit 0' TERM; echo ready; while :; do sleep 0.01; done"},
				"stubborn": {Script: "trap '' TERM HUP; setsid sleep 1000 & echo ready; sleep 1000"},
				"shell":    {Args: []string{"bash", "--norc", "-i"}, TTY: &guest.TTY{}, Env: []string{"PS1=ready"}},
			} {
				cmd.ID = id
				if _, err := c.Start(ctx, cmd, say); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				<-ready
			}
			start := time.Now()
			if err := end(g, c); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-g.exited:
				if err != nil {
					t.Errorf("PID 1: %v", err)
				}
			case <-ctx.Done():
				t.Fatal("PID 1 goes on")
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
			<-c.Done()
		})
	}
}
