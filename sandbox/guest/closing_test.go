package guest_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// Closing a connection whose two directions have ended takes back nothing of
// what was sent: who reads late in the sandbox still gets all of it.
func TestCloseAfterBothEnds(t *testing.T) {
	l := listen(t, connect(t), guest.ListenRequest{Network: "unix"})
	inside := visit(t, "unix", l)
	st, _, err := l.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(st); err != nil {
		t.Fatal(err)
	}
	// More than a socket holds: the rest waits on the way.
	data := bytes.Repeat([]byte("0123456789abcdef"), 25<<10)
	if _, err := st.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(inside); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
}
