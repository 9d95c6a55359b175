package drivertest

import (
	"io"
	"path"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func socketTests() []test {
	return []test{
		{name: "Sockets/Listen", run: testListen},
		{name: "Sockets/Private", run: testListenPrivate},
		{name: "Sockets/Rights", walls: true, run: testListenRights},
		{name: "Sockets/EndWithConnection", run: testListenEnds},
	}
}

func (b *box) listen(t *testing.T, r guest.ListenRequest) guest.Listener {
	t.Helper()
	l, err := b.conn.Listen(ctx(t), r)
	if err != nil {
		t.Fatalf("listen on %s %q: %v", r.Network, r.Address, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// visit connects to a listener inside of the sandbox, and wants an answer that
// goes on when the question has ended.
func (b *box) visit(t *testing.T, network string, l guest.Listener) {
	t.Helper()
	inside, err := b.conn.Dial(ctx(t), network, l.Address())
	if err != nil {
		t.Fatalf("connect to %s: %v", l.Address(), err)
	}
	defer inside.Close()
	st, _, err := l.Accept(ctx(t))
	if err != nil {
		t.Fatalf("accept at %s: %v", l.Address(), err)
	}
	defer st.Close()
	if _, err := io.WriteString(inside, "question"); err != nil {
		t.Fatal(err)
	}
	if err := inside.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(st); err != nil || string(got) != "question" {
		t.Fatalf("%q, %v came in", got, err)
	}
	if _, err := io.WriteString(st, "answer"); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(inside); err != nil || string(got) != "answer" {
		t.Fatalf("%q, %v came back", got, err)
	}
}

func testListen(t *testing.T, e *env) {
	b := e.boot(t)
	for _, r := range []guest.ListenRequest{
		{Network: "tcp", Address: "127.0.0.1:0"},
		{Network: "tcp", Address: "localhost:0"},
		{Network: "tcp", Address: ":0"},
		{Network: "unix", Address: "listening"},
		{Network: "unix"},
	} {
		l := b.listen(t, r)
		b.visit(t, r.Network, l)
		b.visit(t, r.Network, l)
		l.Close()
	}
	b.sh(t, "test ! -e listening")
	_, err := b.conn.Listen(ctx(t), guest.ListenRequest{Network: "tcp", Address: "192.0.2.1:0"})
	wantCode(t, err, fault.Unavailable)
}

func testListenPrivate(t *testing.T, e *env) {
	b := e.boot(t)
	l := b.listen(t, guest.ListenRequest{Network: "unix"})
	dir := path.Dir(l.Address())
	if got := b.sh(t, "stat -c %a "+dir); got != "700" {
		t.Errorf("the directory of a private socket has the mode %s", got)
	}
	l.Close()
	b.until(t, "the end of "+dir, "test ! -e "+dir)
}

// testListenRights holds that a socket is made with the rights of its user.
func testListenRights(t *testing.T, e *env) {
	b := e.boot(t)
	l := b.listen(t, guest.ListenRequest{Network: "unix", User: "1000"})
	b.visit(t, "unix", l)
	if got := b.sh(t, "stat -c '%a %u' "+path.Dir(l.Address())); got != "700 1000" {
		t.Errorf("the directory is %q", got)
	}
	if got := b.sh(t, "stat -c %u "+l.Address()); got != "1000" {
		t.Errorf("the socket belongs to %q", got)
	}
	r := b.run(t, guest.Command{Args: []string{"ls", path.Dir(l.Address())}, User: "1001"}, "")
	if r.exit.Status() == 0 {
		t.Error("another user looks into the private directory")
	}
	_, err := b.conn.Listen(ctx(t), guest.ListenRequest{Network: "unix", Address: "/root-only", User: "1000"})
	wantCode(t, err, fault.Denied)
	b.sh(t, "mkdir -m 777 /open && touch /open/file")
	_, err = b.conn.Listen(ctx(t), guest.ListenRequest{Network: "unix", Address: "/open/file", User: "1000", Replace: true})
	wantCode(t, err, fault.Busy)
	b.sh(t, "test -f /open/file")
	// The directory of all of them is found again when root has removed it.
	b.sh(t, "rm -rf "+path.Dir(path.Dir(l.Address())))
	b.visit(t, "unix", b.listen(t, guest.ListenRequest{Network: "unix", User: "1000"}))
}

func testListenEnds(t *testing.T, e *env) {
	b := e.boot(t)
	own := connect(t, e.d, b.id)
	l, err := own.Listen(ctx(t), guest.ListenRequest{Network: "unix", Address: "listening"})
	if err != nil {
		t.Fatal(err)
	}
	b.sh(t, "test -S listening")
	own.Close()
	b.until(t, "the end of the socket", "test ! -e listening")
	if _, _, err := l.Accept(ctx(t)); err == nil {
		t.Error("a listener outlives its connection")
	}
}
