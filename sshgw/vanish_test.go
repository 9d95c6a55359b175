package sshgw

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startMarked starts a client that runs a command with a process of its own
// and returns the process's id, once it runs.
func startMarked(t *testing.T, g *gateway, opts []string, script string) (*exec.Cmd, int) {
	t.Helper()
	cmd := g.ssh(append(opts, "box@gw", script)...)
	in, err := cmd.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	out := new(syncBuffer)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	out.waitFor(t, "pid=")
	out.waitFor(t, "\n")
	_, rest, _ := strings.Cut(out.String(), "pid=")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, pid
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// P11: when the client is gone its processes are hung up, with and without a
// terminal, however it went; what called setsid lives on.
func TestP11VanishedClient(t *testing.T) {
	g := newGateway(t)
	for _, opts := range [][]string{{"-tt"}, {"-T"}} {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			cmd, pid := startMarked(t, g, opts, "echo pid=$$; exec sleep 1000")
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("%s %v: the end of the process", opts[0], sig), func() bool { return !alive(pid) })
		}
	}
	// A person at a terminal, with a command of its own.
	p := g.person(t, "box@gw", "echo pid=$$.; exec sleep 1000")
	p.out.waitFor(t, ".\r\n")
	sleeper, err := strconv.Atoi(strings.SplitN(p.afterLast("pid="), ".", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	p.types("\r~.")
	eventually(t, "~.: the end of the process", func() bool { return !alive(sleeper) })
	// One that ignores the hangup is killed.
	cmd, pid := startMarked(t, g, []string{"-T"}, "trap '' HUP; echo pid=$$; while :; do sleep 0.1; done")
	_ = cmd.Process.Kill()
	eventually(t, "the end of a process that ignores SIGHUP", func() bool { return !alive(pid) })

	marker := filepath.Join(g.boxes.workspace, "daemon")
	cmd, _ = startMarked(t, g, []string{"-T"}, "setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 </dev/null & while ! [ -s daemon ]; do sleep 0.01; done; echo pid=$$; wait")
	b, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	daemon, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	_ = cmd.Process.Kill()
	g.log.waitFor(t, `tty=false exit=254 signal=""`)
	if !alive(daemon) {
		t.Error("what called setsid was killed")
	}
	_ = syscall.Kill(daemon, syscall.SIGKILL)
}

// P11: connections that end at any moment leave nothing behind. The harness
// counts the goroutines.
func TestP11ManyVanish(t *testing.T) {
	g := newGateway(t)
	for i := range 30 {
		c := g.dial("box", "alice")
		for j := range 3 {
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if j > 0 {
				_ = s.RequestPty("xterm", 24, 80, nil)
			}
			if (i+j)%4 > 0 {
				if err := s.Start([]string{"yes", "cat", "sleep 1000"}[j]); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = c.Close()
	}
}

// P13, P21: a client that stopped altogether is noticed and its connection
// ended, although the kernel still answers for it.
func TestP21StoppedClient(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Keepalive, c.Limits.KeepaliveMisses = 50*time.Millisecond, 2 })
	for _, script := range []string{"echo pid=$$; exec sleep 1000", "echo pid=$$; exec yes"} {
		cmd, pid := startMarked(t, g, []string{"-T"}, script)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the process", func() bool { return !alive(pid) })
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(g.log.String(), "ssh client does not answer"); n != 2 {
		t.Errorf("the log names %d clients that do not answer, want 2", n)
	}
}

// P21: a client that answers stays, however long it is idle.
func TestP21Keepalive(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Keepalive, c.Limits.KeepaliveMisses = 10*time.Millisecond, 100 })
	r := run(t, g.ssh("-n", "-o", "ServerAliveInterval=1", "box@gw", "sleep 1.5; echo still here"), nil)
	r.expect(t, 0, "still here\n")
}

// P30: a gateway that stops tells its clients, gives them time, and leaves
// what runs in the sandbox alone.
func TestP30Drain(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Drain = 300 * time.Millisecond })
	idle := g.dial("box", "alice")
	outs := make([]*syncBuffer, 0, 2)
	cmds := make([]*exec.Cmd, 0, 2)
	pids := make([]int, 0, 2)
	for _, opt := range []string{"-tt", "-T"} {
		errs := new(syncBuffer)
		cmd := g.ssh(opt, "box@gw", "echo pid=$$; exec sleep 1000")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out := new(syncBuffer)
		cmd.Stdout, cmd.Stderr = out, errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.waitFor(t, "\n")
		pid, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(out.String(), "pid=")))
		pids, outs, cmds = append(pids, pid), append(outs, errs), append(cmds, cmd)
	}
	g.stop()
	for i, cmd := range cmds {
		r := finish(t, cmd, new(syncBuffer), outs[i])
		if r.status != exitUnknown || strings.Count(r.stderr, "the gateway is stopping") != 2 {
			t.Errorf("status %d, stderr %q", r.status, r.stderr)
		}
	}
	if err := idle.Wait(); err == nil {
		t.Error("the idle connection ended without an error")
	}
	<-g.stopped
	for _, pid := range pids {
		if !alive(pid) {
			t.Error("a process in the sandbox was ended")
		}
	}
}

// P30: a session that ends in the time it is given has its own status, and the
// gateway waits no longer than for that.
func TestP30DrainWaits(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Drain = 10 * patience })
	fifo := filepath.Join(g.boxes.workspace, "gate")
	mkfifo(t, fifo)
	cmd := g.ssh("-n", "box@gw", "echo up; read x < gate; echo $x; exit 7")
	out, errs := new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "up")
	g.stop()
	errs.waitFor(t, "the gateway is stopping")
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	finish(t, cmd, out, errs).expect(t, 7, "up\ngo\n")
	<-g.stopped
}

// Serve returns the error of a listener that fails, and what it served ends.
func TestListenerFails(t *testing.T) {
	g := newGateway(t)
	srv, err := New(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &failingListener{err: fmt.Errorf("no more")}
	if err := srv.Serve(context.Background(), l); err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("Serve returned %v", err)
	}
}
