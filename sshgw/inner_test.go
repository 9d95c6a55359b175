package sshgw

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// jumpConfig adds the hosts that config-ssh writes to the client's
// configuration: gw, and sandboxes behind it.
func (g *gateway) jumpConfig() {
	g.tb.Helper()
	path := filepath.Join(g.dir, "config")
	old, err := os.ReadFile(path)
	if err != nil {
		g.tb.Fatal(err)
	}
	// The jump's own ssh reads the same file and gets no -i.
	g.write("config", "IdentityFile "+filepath.Join(g.dir, "alice")+"\nHost sbx_* box\n  HostName %h\n  Port 22\n  ProxyJump sandgate@gw\n"+string(old))
}

// Everything works through a jump as it does without one.
func TestJump(t *testing.T) {
	g := newGateway(t)
	g.jumpConfig()
	for _, args := range [][]string{
		{"-n", "sbx_alice", "echo hi; exit 7"},
		{"-n", "box", "echo hi; exit 7"},
		{"-n", "-J", "gw", "someone@sbx_alice", "echo hi; exit 7"},
		{"-n", "-o", "ProxyCommand=ssh -F " + filepath.Join(g.dir, "config") + " -W %h:%p gw", "sbx_alice", "echo hi; exit 7"},
	} {
		if r := run(t, g.ssh(args...), nil); r.status != 7 || r.stdout != "hi\n" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	// A terminal, a big stream both ways, files, and forwards.
	r := run(t, g.ssh("-tt", "sbx_alice", "printf x; exit 3"), strings.NewReader(""))
	r.expect(t, 3, "x")
	data := noise(8 << 20)
	r = run(t, g.ssh("sbx_alice", "cat"), bytes.NewReader(data))
	if r.status != 0 || r.stdout != string(data) {
		t.Errorf("cat: status %d, %d bytes of %d, stderr %q", r.status, len(r.stdout), len(data), r.stderr)
	}
	local := g.write("local", string(data))
	for _, args := range [][]string{{"scp", "-q", local, "sbx_alice:a"}, {"scp", "-q", "-O", local, "sbx_alice:b"}} {
		if r := run(t, g.tool(args[0], args[1:]...), nil); r.status != 0 {
			t.Errorf("%q: status %d, stderr %q", args, r.status, r.stderr)
		}
		got, err := os.ReadFile(filepath.Join(g.boxes.workspace, args[len(args)-1][len("sbx_alice:"):]))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q: %d bytes, %v", args, len(got), err)
		}
	}
	dest := sumServer(t)
	r = run(t, g.ssh("-W", dest, "sbx_alice"), strings.NewReader("abc"))
	r.expect(t, 0, "3\nabc")
	path := filepath.Join(t.TempDir(), "s")
	remoteForward(t, g, "-R", path+":"+dest, "sbx_alice")
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if got := halfClose(t, c, "abc"); got != "3\nabc" {
		t.Errorf("-R: %q", got)
	}
	sock := sshAgent(t, g)
	cmd := g.ssh("-n", "-A", "-o", "IdentityAgent=SSH_AUTH_SOCK", "sbx_alice", "ssh-add -l")
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+sock)
	if r := run(t, cmd, nil); r.status != 0 || !strings.Contains(r.stdout, g.fingerprint("alice")) {
		t.Errorf("-A: status %d, %q, %q", r.status, r.stdout, r.stderr)
	}
}

// The user name behind a jump says who in the sandbox, and cannot say which.
func TestJumpUser(t *testing.T) {
	g := newGateway(t)
	for user, want := range map[string]target{
		"alice": {}, "root": {}, "sbx_other": {}, "other+build": {}, "": {}, "a b": {},
		"+build": {session: "build"}, "~postgres": {account: "postgres"}, "+~postgres": {account: "postgres"},
		"+build+~postgres": {session: "build", account: "postgres"}, "+root": {account: "root"},
	} {
		c := &conn{jump: &jump{sandbox: "sbx_alice"}}
		got, err := c.target(user)
		want.ref, want.isID = "sbx_alice", true
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", user, got, err)
		}
	}
	g.jumpConfig()
	r := run(t, g.ssh("-n", "-l", "~nosuchuser", "sbx_alice", "id -un"), nil)
	if r.status == 0 || !strings.Contains(r.stderr, "nosuchuser") {
		t.Errorf("another user: status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}

// P2: a jump leads to what the principal may use; a foreign sandbox and one
// that is not there look the same. It leads once.
func TestJumpRefused(t *testing.T) {
	g := newGateway(t)
	jump := func(user, key, host string) string {
		_, err := g.dial(user, key).Dial("tcp", net.JoinHostPort(host, "22"))
		return refusal(t, err)
	}
	foreign, missing := jump("gw", "bob", "sbx_alice"), jump("gw", "bob", "sbx_gone")
	if strings.ReplaceAll(foreign, "alice", "gone") != missing || !strings.Contains(missing, `no sandbox "sbx_gone"`) {
		t.Errorf("a foreign sandbox says %q, a missing one %q", foreign, missing)
	}
	if got := jump("gw", "bob", "box"); got != strings.ReplaceAll(missing, "sbx_gone", "box") {
		t.Errorf("a foreign name says %q", got)
	}
	if got := jump("gw", "alice", "127.0.0.1"); !strings.Contains(got, "the gateway forwards into sandboxes only") {
		t.Errorf("an address says %q", got)
	}
	// From a connection into a sandbox it is a connection inside of that.
	if got := jump("box", "alice", "sbx_alice"); !strings.Contains(got, "inside the sandbox") {
		t.Errorf("from inside: %q", got)
	}
	inner := g.jump("gw", "alice", "sbx_alice", "alice")
	if _, err := inner.Dial("tcp", "sbx_alice:22"); err == nil || !strings.Contains(refusal(t, err), "one jump leads to a sandbox") {
		t.Errorf("a second jump: %v", err)
	}
}

// jump connects through the gateway with two keys.
func (g *gateway) jump(user, outer, host, inner string) *gossh.Client {
	g.tb.Helper()
	c, err := g.tryJump(user, outer, host, inner)
	if err != nil {
		g.tb.Fatal(err)
	}
	return c
}

func (g *gateway) tryJump(user, outer, host, inner string) (*gossh.Client, error) {
	link, err := g.dial(user, outer).Dial("tcp", net.JoinHostPort(host, "22"))
	if err != nil {
		return nil, err
	}
	g.tb.Cleanup(func() { _ = link.Close() })
	sc, channels, requests, err := gossh.NewClientConn(link, host, g.clientConfig("me", inner))
	if err != nil {
		return nil, err
	}
	return gossh.NewClient(sc, channels, requests), nil
}

// The channel of a jump proves nothing: who comes through it proves who they
// are, and is who has opened it.
func TestJumpPrincipal(t *testing.T) {
	g := newGateway(t)
	for _, key := range []string{"bob", "stranger"} {
		if _, err := g.tryJump("gw", "alice", "sbx_alice", key); err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
			t.Errorf("%s came through the jump of alice: %v", key, err)
		}
	}
	s, err := g.jump("gw", "alice", "sbx_alice", "alice").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("echo in"); err != nil || string(out) != "in\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// A jump on which nothing is said ends, and so does one whose client has gone;
// a session behind one outlives neither the one nor the other connection.
func TestJumpEnds(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.Handshake = 300 * time.Millisecond })
	link, err := g.dial("gw", "alice").Dial("tcp", "sbx_alice:22")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := io.ReadAll(link)
	if err != nil || !strings.HasPrefix(string(got), "SSH-2.0-") {
		t.Errorf("%q, %v", got, err)
	}
	if d := time.Since(began); d < 200*time.Millisecond {
		t.Errorf("a silent handshake ended after %v", d)
	}
	outer := g.dial("gw", "alice")
	link, err = outer.Dial("tcp", "sbx_alice:22")
	if err != nil {
		t.Fatal(err)
	}
	sc, channels, requests, err := gossh.NewClientConn(link, "sbx_alice", g.clientConfig("me", "alice"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := gossh.NewClient(sc, channels, requests).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out := new(syncBuffer)
	s.Stdout = out
	if err := s.Start("echo up; exec cat"); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "up\n")
	_ = outer.Close()
	if err := sc.Wait(); err == nil {
		t.Error("the inner connection ended well")
	}
	g.log.waitFor(t, "ssh session ended")
}

// A gateway that stops waits for what runs behind a jump.
func TestJumpDrain(t *testing.T) {
	g := newGateway(t)
	c := g.jump("gw", "alice", "sbx_alice", "alice")
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
	if err := s.Start("echo up; cat; exit 5"); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "up\n")
	g.stop()
	g.log.waitFor(t, "ssh draining")
	_, _ = io.WriteString(in, "last words\n")
	_ = in.Close()
	if err, ok := s.Wait().(*gossh.ExitError); !ok || err.ExitStatus() != 5 || !strings.Contains(out.String(), "last words") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// P8, P22: nothing is lost through a jump, with one connection or with many
// sessions on one.
func TestJumpExitCodes(t *testing.T) {
	g := newGateway(t)
	g.jumpConfig()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 10 {
				want := fmt.Sprint(worker*10 + i)
				if r := run(t, g.ssh("-n", "sbx_alice", "printf "+want+"; exit 7"), nil); r.status != 7 || r.stdout != want {
					t.Errorf("status %d, stdout %q, stderr %q; want %s", r.status, r.stdout, r.stderr, want)
				}
			}
		})
	}
	wg.Wait()
	c := g.jump("gw", "alice", "sbx_alice", "alice")
	for i := range 50 {
		wg.Go(func() {
			s, err := c.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			out, err := s.Output(fmt.Sprintf("printf %d; exit %d", i, i))
			if e, ok := err.(*gossh.ExitError); i > 0 && (!ok || e.ExitStatus() != i) || string(out) != fmt.Sprint(i) {
				t.Errorf("session %d: %q, %v", i, out, err)
			}
		})
	}
	wg.Wait()
}

// P20: one line of known_hosts is good for the gateway and every sandbox.
func TestP20KnownHosts(t *testing.T) {
	g := newGateway(t)
	g.jumpConfig()
	for _, host := range []string{"gw", "sbx_alice", "box"} {
		if r := run(t, g.ssh("-n", host, "whoami"), nil); r.status != 0 {
			t.Errorf("%s: status %d, stderr %q", host, r.status, r.stderr)
		}
	}
	known, err := os.ReadFile(filepath.Join(g.dir, "known_hosts"))
	if err != nil || strings.Count(strings.TrimSpace(string(known)), "\n") != 0 {
		t.Errorf("known_hosts holds %q, %v", known, err)
	}
}
