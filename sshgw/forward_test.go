package sshgw

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// sumServer answers each connection, after its input has ended, with the
// number of bytes and then the bytes.
func sumServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var serving sync.WaitGroup
		defer serving.Wait()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { sum(c) })
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// sum answers one connection.
func sum(c net.Conn) {
	b, _ := io.ReadAll(c)
	_, _ = fmt.Fprintln(c, len(b))
	_, _ = c.Write(b)
	_ = c.Close()
}

// P17: a client that has sent all it has still gets the whole answer.
func TestP17ForwardHalfClose(t *testing.T) {
	g := newGateway(t)
	addr := sumServer(t)
	data := noise(3 << 20)
	want := append([]byte(fmt.Sprintln(len(data))), data...)

	r := run(t, g.ssh("-W", addr, "box@gw"), bytes.NewReader(data))
	if r.status != 0 || r.stdout != string(want) {
		t.Errorf("-W: status %d, %d bytes of %d, stderr %q", r.status, len(r.stdout), len(want), r.stderr)
	}

	conn, err := g.dial("sbx_alice", "alice").Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
		t.Errorf("direct-tcpip: %d bytes of %d, %v", len(got), len(want), err)
	}
}

// -L and -D of the OpenSSH client.
func TestForwardClient(t *testing.T) {
	g := newGateway(t)
	addr := sumServer(t)
	_, port, _ := net.SplitHostPort(addr)
	local := filepath.Join(g.dir, "local.sock")
	cmd := g.ssh("-N", "-o", "ExitOnForwardFailure=yes", "-L", local+":localhost:"+port, "box@gw")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var conn net.Conn
	eventually(t, "the forward", func() bool {
		var err error
		conn, err = net.Dial("unix", local)
		return err == nil
	})
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.UnixConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "5\nhello" {
		t.Errorf("-L: %q, %v", got, err)
	}
	_ = conn.Close()
}

// What a client sent before it left is delivered.
func TestForwardDeliversLastBytes(t *testing.T) {
	g := newGateway(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, c)
		got <- int(n)
		_ = c.Close()
	}()
	conn, err := g.dial("box", "alice").Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if n := <-got; n != 1<<20 {
		t.Errorf("%d bytes arrived, want %d", n, 1<<20)
	}
}

// P2, P4: forwards end in the principal's own sandbox or nowhere.
func TestP04ForwardRefused(t *testing.T) {
	g := newGateway(t)
	addr := sumServer(t)
	host, portText, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(portText)
	type request struct {
		Host   string
		Port   uint32
		Origin string
		OPort  uint32
	}
	open := func(user, key string, r request) error {
		_, _, err := g.dial(user, key).OpenChannel("direct-tcpip", gossh.Marshal(r))
		return err
	}
	refusal := func(err error) string { t.Helper(); return refusal(t, err) }
	ok := request{host, uint32(port), "127.0.0.1", 1}
	if got := refusal(open("gw", "alice", ok)); !strings.Contains(got, "the gateway forwards into sandboxes only") {
		t.Errorf("control account: %q", got)
	}
	if got := refusal(open("gw", "alice", request{"sbx_alice", 80, "", 0})); !strings.Contains(got, "the gateway forwards into sandboxes only") {
		t.Errorf("a port of a sandbox: %q", got)
	}
	foreign, missing := refusal(open("sbx_alice", "bob", ok)), refusal(open("sbx_gone", "bob", ok))
	if strings.ReplaceAll(foreign, "alice", "gone") != missing {
		t.Errorf("a foreign sandbox says %q, a missing one %q", foreign, missing)
	}
	for _, r := range []request{{"", 80, "", 0}, {host, 0, "", 0}, {host, 65536, "", 0}, {"a\nb", 80, "", 0}, {strings.Repeat("a", 300), 80, "", 0}} {
		if got := refusal(open("box", "alice", r)); got != "the forwarding request is malformed" {
			t.Errorf("%q: %q", r.Host, got)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	closed := request{"127.0.0.1", uint32(l.Addr().(*net.TCPAddr).Port), "", 0}
	if got := refusal(open("box", "alice", closed)); !strings.Contains(got, "refused") {
		t.Errorf("a closed port says %q", got)
	}
}
