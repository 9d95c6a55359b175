package sshgw

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// remoteForward starts an OpenSSH client that only forwards, and waits until
// it does.
func remoteForward(t *testing.T, g *gateway, spec ...string) (stderr *syncBuffer, stop func()) {
	t.Helper()
	cmd := g.ssh(append([]string{"-N", "-v", "-o", "ExitOnForwardFailure=yes"}, spec...)...)
	stderr = new(syncBuffer)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(stop)
	stderr.waitFor(t, "all expected forwarding replies received")
	return stderr, stop
}

// freePort returns a port of loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// P17: -R of the OpenSSH client, to a port of the client's choice, one of the
// sandbox's, and a unix socket; a client that has sent all it has gets the
// whole answer, and everything ends with the connection.
func TestP17RemoteForward(t *testing.T) {
	g := newGateway(t)
	dest := sumServer(t)
	port, path := freePort(t), filepath.Join(t.TempDir(), "far.sock")
	log, stop := remoteForward(t, g, "-R", fmt.Sprintf("%d:%s", port, dest), "-R", "0:"+dest, "-R", path+":"+dest, "box@gw")
	_, rest, ok := strings.Cut(log.String(), "Allocated port ")
	if !ok {
		t.Fatalf("no port was allocated: %s", log.String())
	}
	chosen, _, _ := strings.Cut(rest, " ")
	data := string(noise(3 << 20))
	want := fmt.Sprintf("%d\n%s", len(data), data)
	dial := func(network, address string) net.Conn {
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, to := range [][2]string{{"tcp", fmt.Sprint("127.0.0.1:", port)}, {"tcp", "127.0.0.1:" + chosen}, {"unix", path}} {
		if got := halfClose(t, dial(to[0], to[1]), data); got != want {
			t.Errorf("%v: %d bytes of %d", to, len(got), len(want))
		}
	}
	// What a connection carries goes on while others come and go.
	long := dial("unix", path)
	for range 20 {
		halfClose(t, dial("unix", path), "x")
	}
	if got := halfClose(t, long, "still here"); got != "10\nstill here" {
		t.Errorf("a long connection: %q", got)
	}
	stop()
	eventually(t, "the end of the listeners", func() bool {
		_, err := os.Lstat(path)
		c, derr := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if derr == nil {
			_ = c.Close()
		}
		return err != nil && derr != nil
	})
}

// D7: a listener belongs to its connection. Nobody else can cancel it.
func TestRemoteForwardOwner(t *testing.T) {
	g := newGateway(t)
	mine, other := g.dial("box", "alice"), g.dial("box", "alice")
	path := filepath.Join(t.TempDir(), "s")
	l, err := mine.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := mine.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	cancel := gossh.Marshal(struct {
		Host string
		Port uint32
	}{"127.0.0.1", uint32(at.Port)})
	unix := gossh.Marshal(struct{ Path string }{path})
	for name, payload := range map[string][]byte{"cancel-tcpip-forward": cancel, "cancel-streamlocal-forward@openssh.com": unix} {
		if ok, _, err := other.SendRequest(name, true, payload); ok || err != nil {
			t.Errorf("%s of another connection: %v, %v", name, ok, err)
		}
	}
	if _, err := other.Listen("tcp", at.String()); err == nil {
		t.Error("a port was taken twice")
	}
	if _, err := other.ListenUnix(path); err == nil {
		t.Error("a socket in use was replaced")
	}
	for _, l := range []net.Listener{l, u} {
		echoed(t, l)
	}
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := halfClose(t, c, "abc"); got != "3\nabc" {
		t.Errorf("after the cancelling of others: %q", got)
	}
	for name, payload := range map[string][]byte{"cancel-tcpip-forward": cancel, "cancel-streamlocal-forward@openssh.com": unix} {
		for i, want := range []bool{true, false} {
			if ok, _, err := mine.SendRequest(name, true, payload); ok != want || err != nil {
				t.Errorf("%s, time %d: %v, %v", name, i+1, ok, err)
			}
		}
	}
	// The answer comes when the place is free.
	if l, err := other.Listen("tcp", at.String()); err != nil {
		t.Error(err)
	} else {
		_ = l.Close()
	}
}

// A socket that nobody listens on any more is replaced; a file is not.
func TestRemoteForwardStale(t *testing.T) {
	g := newGateway(t)
	dir := t.TempDir()
	stale, file := filepath.Join(dir, "stale"), g.write("file", "mine")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	c := g.dial("box", "alice")
	l, err := c.ListenUnix(stale)
	if err != nil {
		t.Fatal(err)
	}
	echoed(t, l)
	conn, err := net.Dial("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	if got := halfClose(t, conn, "abc"); got != "3\nabc" {
		t.Errorf("got %q", got)
	}
	if _, err := c.ListenUnix(file); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file: %q, %v", b, err)
	}
}

// What is refused is refused for the client too, and it reads why.
func TestRemoteForwardRefused(t *testing.T) {
	g := newGateway(t)
	taken := sumServer(t)
	_, port, _ := net.SplitHostPort(taken)
	for _, c := range []struct{ user, spec, want string }{
		{"box", port + ":localhost:1", "in use"},
		{"gw", "0:localhost:1", "the gateway forwards into sandboxes only"},
		{"sbx_gone", "0:localhost:1", `no sandbox "sbx_gone"`},
		{"box", "/nowhere/s:localhost:1", "no such"},
	} {
		r := run(t, g.ssh("-n", "-o", "ExitOnForwardFailure=yes", "-R", c.spec, c.user+"@gw", "true"), nil)
		r.expect(t, 255, "")
		r = run(t, g.ssh("-n", "-R", c.spec, c.user+"@gw", "true"), nil)
		if !strings.Contains(r.stderr, c.want) {
			t.Errorf("-R %s of %s says %q, want %q", c.spec, c.user, r.stderr, c.want)
		}
	}
	g = newGateway(t, func(c *Config) { c.NoForwarding = true })
	r := run(t, g.ssh("-n", "-R", "0:localhost:1", "box@gw", "echo on"), nil)
	if r.expect(t, 0, "on\n"); !strings.Contains(r.stderr, "forwarding is switched off on this gateway") {
		t.Errorf("switched off, it says %q", r.stderr)
	}
	r = run(t, g.ssh("-W", taken, "box@gw"), nil)
	if r.expect(t, 255, ""); !strings.Contains(r.stderr, "forwarding is switched off on this gateway") {
		t.Errorf("-W says %q", r.stderr)
	}
}

// The listeners of a connection count among its forwards, and floods of
// requests neither hold up other channels nor lose the order of the answers.
func TestRemoteForwardFlood(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.ForwardsPerConnection = 3 })
	c := g.dial("box", "alice")
	any := gossh.Marshal(struct {
		Host string
		Port uint32
	}{"127.0.0.1", 0})
	for i := range 6 {
		if ok, _, err := c.SendRequest("tcpip-forward", true, any); ok != (i < 3) || err != nil {
			t.Errorf("listener %d: %v, %v", i, ok, err)
		}
	}
	g = newGateway(t)
	c = g.dial("box", "alice")
	for range 2000 {
		if _, _, err := c.SendRequest("tcpip-forward", false, any); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.SendRequest("keepalive@x", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("echo ok"); err != nil || string(out) != "ok\n" {
		t.Errorf("second channel: %q, %v", out, err)
	}
	// A port of one's own is the answer to a request, not to an earlier one.
	for range 50 {
		if ok, answer, err := c.SendRequest("keepalive@x", true, nil); ok || len(answer) != 0 || err != nil {
			t.Fatalf("keepalive: %v, %x, %v", ok, answer, err)
		}
	}
}

// A client that refuses the channel, or has gone, leaves nothing behind; what
// is malformed is refused.
func TestRemoteForwardHostile(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	ok, answer, err := c.SendRequest("tcpip-forward", true, gossh.Marshal(struct {
		Host string
		Port uint32
	}{"localhost", 0}))
	var m struct{ Port uint32 }
	if err != nil || !ok || gossh.Unmarshal(answer, &m) != nil {
		t.Fatalf("%v, %x, %v", ok, answer, err)
	}
	// x/crypto's client refuses channels that it has no handler for.
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", m.Port))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(conn); len(b) != 0 {
		t.Errorf("a refused connection got %q", b)
	}
	_ = conn.Close()
	for name, payloads := range map[string][][]byte{
		"tcpip-forward":                   {nil, any32("a\nb", 1), any32("", 65536), any32(strings.Repeat("a", 300), 1), any32("no such host.invalid", 0)},
		"cancel-tcpip-forward":            {nil, any32("", 1), any32("x", 0)},
		"streamlocal-forward@openssh.com": {nil, gossh.Marshal(struct{ P string }{""}), gossh.Marshal(struct{ P string }{"a\x00b"}), bytes.Repeat([]byte{0xff}, 50)},
	} {
		for _, payload := range payloads {
			if ok, _, err := c.SendRequest(name, true, payload); ok || err != nil {
				t.Errorf("%s %q: %v, %v", name, payload, ok, err)
			}
		}
	}
}

func any32(host string, port uint32) []byte {
	return gossh.Marshal(struct {
		Host string
		Port uint32
	}{host, port})
}
