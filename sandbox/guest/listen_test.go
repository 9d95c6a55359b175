package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

func listen(t testing.TB, c *guest.Conn, r guest.ListenRequest) guest.Listener {
	t.Helper()
	l, err := c.Listen(testContext(t), r)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// visit connects to a listener as a program inside the sandbox does.
func visit(t testing.TB, network string, l guest.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial(network, l.Address())
	if err != nil {
		t.Fatalf("connect to %s: %v", l.Address(), err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestListen(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	for name, r := range map[string]guest.ListenRequest{
		"tcp":           {Network: "tcp", Address: "127.0.0.1:0"},
		"localhost":     {Network: "tcp", Address: "localhost:0"},
		"every address": {Network: "tcp", Address: "*:0"},
		"unix":          {Network: "unix", Address: filepath.Join(t.TempDir(), "s")},
		"relative":      {Network: "unix", Address: "s"},
		"private":       {Network: "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, c, r)
			in := bytes.Repeat([]byte("0123456789"), 100_000)
			for range 3 {
				inside := visit(t, r.Network, l)
				st, peer, err := l.Accept(testContext(t))
				if err != nil {
					t.Fatal(err)
				}
				defer st.Close()
				if want := inside.LocalAddr().String(); r.Network == "tcp" && peer != want || r.Network == "unix" && peer != "" {
					t.Errorf("the peer is %q, want %q", peer, want)
				}
				go func() { // an echo that outlives its input
					io.Copy(st, st)
					io.WriteString(st, "bye")
					st.CloseWrite()
				}()
				go func() {
					inside.Write(in)
					inside.(interface{ CloseWrite() error }).CloseWrite()
				}()
				if out, err := io.ReadAll(inside); err != nil || string(out) != string(in)+"bye" {
					t.Errorf("%d bytes came back of %d: %v", len(out), len(in), err)
				}
			}
		})
	}
}

// Both addresses of localhost lead there, where there are two.
func TestListenLocalhost(t *testing.T) {
	c := connect(t)
	l := listen(t, c, guest.ListenRequest{Network: "tcp", Address: "localhost:0"})
	_, port, err := net.SplitHostPort(l.Address())
	if err != nil {
		t.Fatal(err)
	}
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("not on this kind of machine: there is no IPv6")
	}
	probe.Close()
	inside, err := net.Dial("tcp", "[::1]:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	st, peer, err := l.Accept(testContext(t))
	if err != nil || !strings.HasPrefix(peer, "[::1]:") {
		t.Fatalf("%q %v", peer, err)
	}
	st.Close()
}

// Nobody else may connect to a unix socket, and nothing is left of it.
func TestListenPrivate(t *testing.T) {
	c := connect(t)
	l := listen(t, c, guest.ListenRequest{Network: "unix"})
	for path, want := range map[string]os.FileMode{
		filepath.Dir(l.Address()): os.ModeDir | 0o700,
		l.Address():               os.ModeSocket | 0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v (%v)", path, info.Mode(), want, err)
		}
	}
	l.Close()
	gone(t, c, filepath.Dir(l.Address()))
}

// gone waits until the guest has removed a file: it hears of the end of a
// listener a moment after its owner.
func gone(t testing.TB, c *guest.Conn, path string) {
	t.Helper()
	ctx := testContext(t)
	for {
		_, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is still there", path)
		}
		if c != nil {
			c.Ping(ctx)
		}
	}
}

func TestListenReplace(t *testing.T) {
	c := connect(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	r := guest.ListenRequest{Network: "unix", Address: path}
	if _, err := c.Listen(testContext(t), r); !fault.Is(err, fault.Busy) {
		t.Errorf("over a socket: %v", err)
	}
	r.Replace = true
	first := listen(t, c, r)
	second := listen(t, c, r)
	first.Close() // must not remove what is the second's
	inside := visit(t, "unix", second)
	defer inside.Close()
	if _, _, err := second.Accept(testContext(t)); err != nil {
		t.Error(err)
	}
	second.Close()
	gone(t, c, path)

	for name, make := range map[string]func(string) error{
		"file":      func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":      func(p string) error { return os.Symlink("/etc/passwd", p) },
	} {
		r.Address = filepath.Join(dir, name)
		if err := make(r.Address); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Listen(testContext(t), r); !fault.Is(err, fault.Busy) {
			t.Errorf("over a %s: %v", name, err)
		}
		if _, err := os.Lstat(r.Address); err != nil {
			t.Errorf("the %s is gone: %v", name, err)
		}
	}
}

func TestListenErrors(t *testing.T) {
	c := connect(t)
	taken := listen(t, c, guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"})
	for _, tc := range []struct {
		network, address string
		code             fault.Code
		says             string
	}{
		{"tcp", taken.Address(), fault.Busy, "listen on " + taken.Address() + " inside the sandbox: address already in use"},
		{"tcp", "", fault.Invalid, "not host:port"},
		{"tcp", "127.0.0.1", fault.Invalid, "not host:port"},
		{"tcp", "127.0.0.1:99999", fault.Invalid, "port"},
		{"tcp", "127.0.0.1:-1", fault.Invalid, "port"},
		{"tcp", "127.0.0.1:http", fault.Invalid, "port"},
		{"tcp", "192.0.2.1:0", fault.Unavailable, "assign"},
		{"udp", "127.0.0.1:0", fault.Invalid, "network"},
		{"unix", "/no/such/directory/s", fault.NotFound, "no such file"},
		{"unix", "/" + strings.Repeat("x", 200), fault.Invalid, "at most 107 bytes"},
		{"unix", "a\x1b[2J", fault.Invalid, "control"},
		{"unix", "a\xff", fault.Invalid, ""},
		{"tcp", strings.Repeat("x", 1000), fault.Invalid, "address"},
	} {
		_, err := c.Listen(testContext(t), guest.ListenRequest{Network: tc.network, Address: tc.address})
		if !fault.Is(err, tc.code) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %.30q: %v (%s)", tc.network, tc.address, err, fault.CodeOf(err))
		}
	}
	if _, err := c.Listen(testContext(t), guest.ListenRequest{Network: "unix", User: "nobody-of-this-name"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an unknown user: %v", err)
	}
}

// What nobody takes over waits, in the kernel in the end, and costs no memory.
func TestListenNobodyAccepts(t *testing.T) {
	c := connect(t)
	l := listen(t, c, guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"})
	const many = 2*wire.MaxPending + 10
	for range many {
		visit(t, "tcp", l)
	}
	for i := range many {
		st, _, err := l.Accept(testContext(t))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		st.Close()
	}
	if _, _, err := l.Accept(cancelled()); !fault.Is(err, fault.Cancelled) {
		t.Errorf("accept with nobody there: %v", err)
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Connections that were accepted outlive their listener; those that were not do
// not.
func TestListenClose(t *testing.T) {
	c := connect(t)
	l := listen(t, c, guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"})
	inside, waits := visit(t, "tcp", l), visit(t, "tcp", l)
	st, _, err := l.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l.Close()
	l.Close()
	if _, _, err := l.Accept(testContext(t)); !fault.Is(err, fault.Cancelled) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	if b, err := io.ReadAll(waits); len(b) != 0 {
		t.Errorf("who was never accepted got %q, %v", b, err)
	}
	go io.WriteString(inside, "ping")
	buf := make([]byte, 4)
	if _, err := io.ReadFull(st, buf); err != nil || string(buf) != "ping" {
		t.Errorf("%q %v", buf, err)
	}
	if _, err := net.Dial("tcp", l.Address()); err == nil {
		t.Error("the address still answers")
	}
}

func TestListenTooMany(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	r := guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"}
	for range wire.MaxListen {
		listen(t, c, r)
	}
	if _, err := c.Listen(testContext(t), r); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	if l, err := s.connect(t).Listen(testContext(t), r); err != nil {
		t.Errorf("another connection: %v", err)
	} else {
		l.Close()
	}
}

// Everything goes with the connection of the host.
func TestListenLost(t *testing.T) {
	c := connect(t)
	private := listen(t, c, guest.ListenRequest{Network: "unix"})
	l := listen(t, c, guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"})
	inside := visit(t, "tcp", l)
	st, _, err := l.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, _, err := l.Accept(context.Background())
		waiting <- err
	}()
	c.Close()
	if err := <-waiting; !errors.Is(err, guest.ErrLost) {
		t.Errorf("accept: %v", err)
	}
	if _, err := st.Read(make([]byte, 1)); !errors.Is(err, guest.ErrLost) {
		t.Errorf("read: %v", err)
	}
	if b, err := io.ReadAll(inside); len(b) != 0 {
		t.Errorf("inside: %q %v", b, err)
	}
	gone(t, nil, filepath.Dir(private.Address()))
}

func TestListenOlderGuest(t *testing.T) {
	for version := wire.OldestVersion; version < wire.ListenVersion; version++ {
		c := hostileOf(t, version, message(`{"result":{"address":"127.0.0.1:1","listener":1}}`))
		if _, err := c.Listen(testContext(t), guest.ListenRequest{Network: "tcp", Address: ":0"}); !fault.Is(err, fault.Unsupported) {
			t.Errorf("version %d: %v", version, err)
		}
		if _, err := c.Start(testContext(t), guest.Command{ID: "x", Builtin: guest.BuiltinSFTP}, guest.Output{}); !fault.Is(err, fault.Unsupported) {
			t.Errorf("version %d: a builtin: %v", version, err)
		}
	}
}

// A guest that lies about who connects loses its connection.
func TestHostileListener(t *testing.T) {
	tcp := message(`{"result":{"address":"127.0.0.1:80","listener":1}}`)
	connected := func(peer string) []byte {
		return frame(wire.KindConnected, `{"number":1,"peer":"`+peer+`"}`)
	}
	for name, answer := range map[string][]byte{
		"no address":    message(`{"result":{"listener":1}}`),
		"no port":       message(`{"result":{"address":"127.0.0.1:0","listener":1}}`),
		"a name":        message(`{"result":{"address":"evil.example:80","listener":1}}`),
		"control":       message(`{"result":{"address":"\u001b[2J","listener":1}}`),
		"data":          frames(tcp, frame(wire.KindData, "x")),
		"a peer's name": frames(tcp, connected("evil.example:80")),
		"no peer":       frames(tcp, connected("")),
		"a long peer":   frames(tcp, frame(wire.KindConnected, strings.Repeat("x", wire.MaxControl+1))),
		"too many":      frames(tcp, bytes.Repeat(connected("127.0.0.1:1"), wire.MaxPending+1)),
		"no reason":     frames(tcp, frame(wire.KindResult, `{}`)),
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, answer)
			l, err := c.Listen(testContext(t), guest.ListenRequest{Network: "tcp", Address: ":0"})
			if err == nil {
				<-c.Done()
				_, _, err = l.Accept(testContext(t))
			}
			if !errors.Is(err, guest.ErrLost) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("an end with a reason", func(t *testing.T) {
		c := hostile(t, frames(tcp, frame(wire.KindResult, `{"error":{"code":"EXHAUSTED","message":"no\u001b more"}}`)))
		l, err := c.Listen(testContext(t), guest.ListenRequest{Network: "tcp", Address: ":0"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.Accept(testContext(t)); !fault.Is(err, fault.Exhausted) || err.Error() != "no  more" {
			t.Errorf("%q", err)
		}
	})
	t.Run("a zone", func(t *testing.T) {
		c := hostile(t, message(`{"result":{"address":"[fe80::1%\u001b[2J]:80","listener":1}}`))
		if l, err := c.Listen(testContext(t), guest.ListenRequest{Network: "tcp", Address: ":0"}); err != nil || l.Address() != "[fe80::1]:80" {
			t.Errorf("%v", err)
		}
	})
}
