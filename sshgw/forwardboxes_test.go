package sshgw

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/guest"
)

func (b *box) Listen(ctx context.Context, ref string, r guest.ListenRequest) (guest.Listener, error) {
	if err := b.may(ref); err != nil {
		return nil, err
	}
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	return conn.Listen(ctx, r)
}

// halfClose sends data, ends that direction, and returns all that comes back.
func halfClose(t *testing.T, c net.Conn, data string) string {
	t.Helper()
	defer c.Close()
	if _, err := io.WriteString(c, data); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// echoed serves connections of l the way sumServer does, on the client's side.
func echoed(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			sum(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

// refusal returns the words with which a channel was refused.
func refusal(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*gossh.OpenChannelError](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	return e.Message
}
