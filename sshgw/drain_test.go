package sshgw

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// begin starts a client and waits until it has printed what.
func begin(t *testing.T, cmd *exec.Cmd, what string) (out, errs *syncBuffer) {
	t.Helper()
	out, errs = new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	in, err := cmd.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill() })
	out.waitFor(t, what)
	return out, errs
}

// P30: a gateway that stops with an open shell, a long command, a copy under
// way and a dashboard: the copy comes to its end with its own status, the
// dashboard leaves the terminal as it was, the others are told; nobody new
// gets in, and the gateway waits no longer than for them.
func TestP30DrainOfEverything(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option, func(c *Config) {
		c.Limits.Drain = 5 * time.Second
		c.Commands = func(ctx context.Context, cio CommandIO, args []string) int {
			if len(args) == 0 || args[0] != "dashboard" {
				// A command that is not done when the time is over.
				fmt.Fprintln(cio.Stdout, "working")
				<-ctx.Done()
				fmt.Fprintln(cio.Stdout, "last words:", context.Cause(ctx))
				return 9
			}
			cio.TTY.SetRaw()
			fmt.Fprint(cio.Stdout, "\x1b[?1049hdashboard")
			<-ctx.Done()
			fmt.Fprint(cio.Stdout, "\x1b[?1049l"+context.Cause(ctx).Error()+"\r\n")
			return 3
		}
	})
	file, fifo := filepath.Join(g.boxes.workspace, "big"), filepath.Join(g.boxes.workspace, "gate")
	data := noise(4 << 20)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, fifo)
	shell, long, dash, tree := g.ssh("-tt", "box@gw"), g.ssh("-T", "box@gw", "echo up; exec sleep 1000"), g.ssh("-tt", "gw", "dashboard"), g.ssh("gw", "other")
	shellOut, shellErr := begin(t, shell, "")
	longOut, longErr := begin(t, long, "up")
	dashOut, dashErr := begin(t, dash, "dashboard")
	treeOut, treeErr := begin(t, tree, "working")
	half := g.ssh("-T", "box@gw", "head -c 1000000 big; read x <gate; tail -c +1000001 big")
	var copied bytes.Buffer
	copyErr := new(syncBuffer)
	half.Stdout, half.Stderr = &copied, copyErr
	if err := half.Start(); err != nil {
		t.Fatal(err)
	}
	defer half.Process.Kill()
	trail.one(t, "start", "exec")
	eventually(t, "all five", func() bool { return len(trail.of("start", "")) == 5 })
	g.stop()
	// The dashboard goes first, without waiting for anybody.
	r := finish(t, dash, dashOut, dashErr)
	if r.status != 3 || !strings.HasSuffix(r.stdout, "\x1b[?1049lthe gateway is stopping\r\n") {
		t.Errorf("dashboard: status %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	copyErr.waitFor(t, "the gateway is stopping")
	if run(t, g.ssh("-n", "-o", "ConnectTimeout=5", "box@gw", "true"), nil).status != 255 {
		t.Error("somebody new got in")
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	r = finish(t, half, new(syncBuffer), copyErr)
	if r.status != 0 || !bytes.Equal(copied.Bytes(), data) {
		t.Errorf("the copy: status %d, %d bytes of %d, %q", r.status, copied.Len(), len(data), r.stderr)
	}
	r = finish(t, long, longOut, longErr)
	if r.status != exitUnknown || !strings.Contains(r.stderr, "what runs in the sandbox goes on") {
		t.Errorf("the long command: status %d, %q", r.status, r.stderr)
	}
	r = finish(t, shell, shellOut, shellErr)
	if said := r.stdout + r.stderr; !strings.Contains(said, "the gateway is stopping") && !strings.Contains(said, "come back") {
		t.Errorf("the shell: status %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	r = finish(t, tree, treeOut, treeErr)
	if r.status != 9 || r.stdout != "working\nlast words: the gateway is stopping\n" {
		t.Errorf("the command: status %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	<-g.stopped
	for _, r := range trail.of("logout", "") {
		if r.Reason != "" && r.Reason != errStopping.Error() {
			t.Errorf("logout because of %q", r.Reason)
		}
	}
}

// P30: scp under way comes to its end.
func TestP30DrainOfSCP(t *testing.T) {
	scp, err := exec.LookPath("scp")
	if err != nil {
		t.Skip("scp is not installed")
	}
	g := newGateway(t, func(c *Config) { c.Limits.Drain = 10 * patience })
	data := noise(1 << 20)
	// 4 Mbit/s: it takes about two seconds.
	cmd := exec.Command(scp, "-O", "-l", "4000", "-F", filepath.Join(g.dir, "config"), "-i", filepath.Join(g.dir, "alice"),
		g.write("source", string(data)), "box@gw:copy")
	cmd.Env = append(os.Environ(), "HOME="+g.dir)
	errs := new(syncBuffer)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(g.boxes.workspace, "copy")
	eventually(t, "the beginning of the copy", func() bool {
		info, err := os.Stat(copied)
		return err == nil && info.Size() > 0
	})
	g.stop()
	r := finish(t, cmd, new(syncBuffer), errs)
	if got, err := os.ReadFile(copied); r.status != 0 || err != nil || !bytes.Equal(got, data) {
		t.Errorf("status %d, %d bytes of %d, %v, %q", r.status, len(got), len(data), err, r.stderr)
	}
	<-g.stopped
}
