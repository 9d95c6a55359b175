package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// serve accepts one connection "inside the sandbox".
func serve(t *testing.T, network, address string, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		handle(c)
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	return l.Addr().String()
}

func echo(c net.Conn) {
	io.Copy(c, c)
	io.WriteString(c, "bye")
}

func TestDial(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	for name, address := range map[string][2]string{
		"tcp":           {"tcp", serve(t, "tcp", "127.0.0.1:0", echo)},
		"unix":          {"unix", serve(t, "unix", filepath.Join(t.TempDir(), "sock"), echo)},
		"unix relative": {"unix", filepath.Base(serve(t, "unix", filepath.Join(s.workspace, "sock"), echo))},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := c.Dial(testContext(t), address[0], address[1])
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			in := bytes.Repeat([]byte("0123456789"), 300_000)
			go func() {
				st.Write(in)
				st.CloseWrite() // the other direction stays open
			}()
			out, err := io.ReadAll(st)
			if err != nil || string(out) != string(in)+"bye" {
				t.Errorf("%d bytes came back of %d: %v", len(out), len(in), err)
			}
		})
	}
}

// The service ends its direction first and goes on reading.
func TestDialHalfClose(t *testing.T) {
	c := connect(t)
	got := make(chan string, 1)
	address := serve(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	st, err := c.Dial(testContext(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if b, err := io.ReadAll(st); string(b) != "hello" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	if _, err := io.WriteString(st, "still here"); err != nil {
		t.Fatal(err)
	}
	st.CloseWrite()
	if s := <-got; s != "still here" {
		t.Errorf("the service got %q", s)
	}
}

func TestDialErrors(t *testing.T) {
	c := connect(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	l.Close()
	for _, tc := range []struct {
		network, address string
		code             fault.Code
		says             string
	}{
		{"tcp", refused, fault.Unavailable, fmt.Sprintf("connect to %s inside the sandbox: connection refused", refused)},
		{"tcp", "127.0.0.1", fault.Invalid, "not host:port"},
		{"tcp", "127.0.0.1:99999", fault.Invalid, ""},
		{"unix", "/no/such/socket", fault.NotFound, "/no/such/socket"},
		{"udp", "127.0.0.1:1", fault.Invalid, "network"},
		{"tcp", strings.Repeat("x", 1000), fault.Invalid, "address"},
	} {
		_, err := c.Dial(testContext(t), tc.network, tc.address)
		if !fault.Is(err, tc.code) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %.30s: %v (%s)", tc.network, tc.address, err, fault.CodeOf(err))
		}
	}
}

func TestDialReset(t *testing.T) {
	c := connect(t)
	address := serve(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0) // Close sends a reset
	})
	st, err := c.Dial(testContext(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := io.WriteString(st, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(st); len(b) != 0 || !fault.Is(err, fault.Unavailable) || errors.Is(err, guest.ErrLost) {
		t.Errorf("%q %v", b, err)
	}
	if err := c.Ping(testContext(t)); err != nil {
		t.Errorf("the reset of one connection took all with it: %v", err)
	}
}

// Closing lets go of a service that does not read.
func TestDialCloseStuck(t *testing.T) {
	c := connect(t)
	ended := make(chan error, 1)
	closed := make(chan struct{})
	address := serve(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		<-closed
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	st, err := c.Dial(testContext(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := st.Write(make([]byte, 64<<20))
		written <- err
	}()
	st.Close()
	if err := <-written; err == nil {
		t.Error("64 MiB were taken")
	}
	close(closed)
	<-ended
	if _, err := st.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after close: %v", err)
	}
	if _, err := st.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read after close: %v", err)
	}
}

func TestDialLost(t *testing.T) {
	c := connect(t)
	st, err := c.Dial(testContext(t), "tcp", serve(t, "tcp", "127.0.0.1:0", echo))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	c.Close()
	if _, err := st.Read(make([]byte, 1)); !errors.Is(err, guest.ErrLost) {
		t.Errorf("read: %v", err)
	}
}
