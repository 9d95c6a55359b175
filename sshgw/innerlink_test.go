package sshgw

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// stubChannel is a channel whose client is a pipe, and which, like a real one,
// is not unblocked by being closed on our side.
type stubChannel struct {
	gossh.Channel
	r      *io.PipeReader
	w      chan struct{} // writes wait for it
	closed atomic.Int32
}

func (s *stubChannel) Read(p []byte) (int, error) { return s.r.Read(p) }

func (s *stubChannel) Write(p []byte) (int, error) { <-s.w; return 0, io.EOF }

func (s *stubChannel) Close() error { s.closed.Add(1); return nil }

// A link keeps its deadlines, which can be moved, and its end ends reading.
func TestLinkDeadlines(t *testing.T) {
	r, w := io.Pipe()
	ch := &stubChannel{r: r, w: make(chan struct{})}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	l := newLink(ch, a, func() {})
	pumped := make(chan struct{})
	go func() { defer close(pumped); l.pump() }()
	buf := make([]byte, 100)
	_ = l.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := l.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	_ = l.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := l.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline that passes: %v", err)
	}
	_ = l.SetReadDeadline(time.Time{})
	go func() { _, _ = w.Write([]byte("hello")) }()
	if n, err := io.ReadFull(l, buf[:3]); err != nil || string(buf[:n]) != "hel" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if n, err := l.Read(buf); err != nil || string(buf[:n]) != "lo" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	// One that is set while somebody reads.
	failed := make(chan error)
	go func() { _, err := l.Read(buf); failed <- err }()
	_ = l.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline set meanwhile: %v", err)
	}
	// A write that is stuck when its deadline passes closes the link.
	_ = l.SetReadDeadline(time.Time{})
	go func() { _, err := l.Read(buf); failed <- err }()
	written := make(chan error)
	go func() { _, err := l.Write([]byte("x")); written <- err }()
	eventually(t, "the write", func() bool { return l.writing.Load() == 1 })
	_ = l.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed link: %v", err)
	}
	close(ch.w) // the client lets go
	_ = w.Close()
	close(l.gone)
	if err := <-written; err == nil {
		t.Error("the write succeeded")
	}
	<-pumped
	if _, err := l.Read(buf); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := l.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a deadline after the end: %v", err)
	}
	eventually(t, "the closing of the channel", func() bool { return ch.closed.Load() == 1 })
	if l.RemoteAddr() != a.RemoteAddr() || l.LocalAddr() != a.LocalAddr() {
		t.Error("the addresses are not those of what carries it")
	}
}
