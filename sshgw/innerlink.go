package sshgw

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

const (
	// linkChunk is the most that is read from a channel at a time.
	linkChunk = 32 << 10
	// linkPatience is how long a client may take to answer the closing of a
	// channel. Until then a write may wait for the client to make room.
	linkPatience = 45 * time.Second
)

// link is a channel as a network connection, with working deadlines: without
// them no bound on the time of a handshake would hold.
type link struct {
	ch    gossh.Channel
	under net.Conn // the connection that carries the channel
	hard  func()   // ends that connection

	chunks chan []byte   // what was read; closed at the end
	taken  chan struct{} // the last chunk may be overwritten
	rest   []byte        // of the last chunk; of Read
	owed   bool          // taken has not been told of it; of Read

	readBy, writeBy deadline
	writing         atomic.Int32
	closing         sync.Once
	closed          chan struct{}
	gone            chan struct{} // to be closed when the client has let go of the channel
}

// newLink makes a connection of a channel and owns it. hard ends what carries
// it, for a client that does not let go of the channel. The caller runs pump.
func newLink(ch gossh.Channel, under net.Conn, hard func()) *link {
	l := &link{
		ch: ch, under: under, hard: hard,
		chunks: make(chan []byte), taken: make(chan struct{}),
		closed: make(chan struct{}), gone: make(chan struct{}),
	}
	return l
}

// pump reads the channel, a chunk ahead of Read. It ends when the client has
// closed the channel, which hard sees to.
func (l *link) pump() {
	defer close(l.chunks)
	buf := make([]byte, linkChunk)
	for {
		n, err := l.ch.Read(buf)
		if n > 0 {
			select {
			case l.chunks <- buf[:n]:
			case <-l.closed:
				_, _ = io.Copy(io.Discard, l.ch)
				return
			}
			select {
			case <-l.taken:
			case <-l.closed:
				_, _ = io.Copy(io.Discard, l.ch)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Read reads from the client. One goroutine reads.
func (l *link) Read(p []byte) (int, error) {
	if isDone(l.closed) {
		return 0, net.ErrClosed
	}
	if isDone(l.readBy.passed()) {
		return 0, os.ErrDeadlineExceeded
	}
	if len(l.rest) == 0 {
		if l.owed {
			l.owed = false
			select {
			case l.taken <- struct{}{}:
			case <-l.closed:
				return 0, net.ErrClosed
			}
		}
		select {
		case chunk, ok := <-l.chunks:
			if !ok {
				return 0, io.EOF
			}
			l.rest, l.owed = chunk, true
		case <-l.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case <-l.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Write writes to the client. When its deadline passes meanwhile, the link is
// closed: what was written in part is of no use to anybody.
func (l *link) Write(p []byte) (int, error) {
	if isDone(l.closed) {
		return 0, net.ErrClosed
	}
	l.writing.Add(1)
	defer l.writing.Add(-1)
	if isDone(l.writeBy.passed()) {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := l.ch.Write(p)
	if err != nil && isDone(l.writeBy.passed()) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// Close closes the channel. Reads end at once; a write that waits for room
// ends when the client lets go of the channel.
func (l *link) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.readBy.set(time.Time{}, nil)
		l.writeBy.set(time.Time{}, nil)
		late := time.AfterFunc(linkPatience, l.hard)
		go func() {
			<-l.gone
			late.Stop()
		}()
		_ = l.ch.Close()
	})
	return nil
}

// LocalAddr is that of the connection that carries the link.
func (l *link) LocalAddr() net.Addr { return l.under.LocalAddr() }

// RemoteAddr is that of the connection that carries the link: checks of the
// source address hold behind a jump too.
func (l *link) RemoteAddr() net.Addr { return l.under.RemoteAddr() }

// carrier is the connection that the bytes travel on.
func (l *link) carrier() net.Conn { return l.under }

// SetDeadline sets both deadlines.
func (l *link) SetDeadline(t time.Time) error {
	_ = l.SetReadDeadline(t)
	return l.SetWriteDeadline(t)
}

// SetReadDeadline ends reads at t; zero is never.
func (l *link) SetReadDeadline(t time.Time) error {
	if isDone(l.closed) {
		return net.ErrClosed
	}
	l.readBy.set(t, nil)
	return nil
}

// SetWriteDeadline ends writes at t; zero is never.
func (l *link) SetWriteDeadline(t time.Time) error {
	if isDone(l.closed) {
		return net.ErrClosed
	}
	l.writeBy.set(t, func() {
		if l.writing.Load() > 0 {
			_ = l.Close()
		}
	})
	return nil
}

// deadline is a point in time that may be moved. The zero value is never.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when it has passed
}

// passed is closed when the deadline has passed.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current()
}

func (d *deadline) current() chan struct{} {
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

// set moves the deadline; then, if not nil, is called when it has passed.
func (d *deadline) set(t time.Time, then func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.over = nil // the timer closes, or has closed, the one it knows
	}
	d.timer = nil
	over := d.current()
	if isDone(over) {
		d.over = nil
		over = d.current()
	}
	if t.IsZero() {
		return
	}
	if then == nil {
		then = func() {}
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(over)
		go then()
		return
	}
	d.timer = time.AfterFunc(wait, func() {
		close(over)
		then()
	})
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
