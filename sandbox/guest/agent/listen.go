package agent

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// listener is what a host listens on: one socket, or two where a name means
// two addresses. It keeps the connections that were announced until the host
// takes them over.
type listener struct {
	sockets []net.Listener
	address string
	remove  func() // takes away what it has made in the filesystem

	// room holds one element for each connection that waits, or will: nobody
	// is accepted while there is none for the next.
	room chan struct{}
	once sync.Once
	done chan struct{} // closed by close

	mu      sync.Mutex
	closed  bool
	newest  uint64
	waiting map[uint64]halfCloser
}

func newListener(address string, sockets ...net.Listener) *listener {
	return &listener{
		sockets: sockets, address: address, remove: func() {},
		room: make(chan struct{}, wire.MaxPending), done: make(chan struct{}), waiting: make(map[uint64]halfCloser),
	}
}

// close ends the listening, and those who wait.
func (l *listener) close() {
	l.once.Do(func() {
		close(l.done)
		l.remove()
		for _, socket := range l.sockets {
			socket.Close()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed = true
		for _, c := range l.waiting {
			c.Close()
		}
		clear(l.waiting)
	})
}

// hold lets a connection wait and returns its number.
func (l *listener) hold(c halfCloser) (number uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return 0, false
	}
	l.newest++
	l.waiting[l.newest] = c
	return l.newest, true
}

// take hands a connection over, once.
func (l *listener) take(number uint64) (halfCloser, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.waiting[number]
	if ok {
		delete(l.waiting, number)
		<-l.room
	}
	return c, ok
}

// listen listens on a socket inside the sandbox until the host leaves.
func (s *session) listen(st *yamux.Stream, args wire.Listen) error {
	l, err := s.agent.openListener(args)
	if err != nil {
		return err
	}
	defer l.close()
	number, err := s.addListener(l)
	if err != nil {
		return err
	}
	defer s.dropListener(number)
	if !s.reply(st, wire.Listening{Address: l.address, Listener: number}, nil) {
		return nil
	}
	left := make(chan struct{})
	go func() { // ends with the stream
		defer close(left)
		untilLeft(st)
		st.SetWriteDeadline(longAgo)
		l.close()
	}()
	frames := wire.NewFrameWriter(st)
	var accepting sync.WaitGroup
	for _, socket := range l.sockets {
		accepting.Go(func() {
			err := l.accept(socket, frames)
			if err != nil {
				conclude(frames, nil, listenError(err, l.address))
			}
			l.close()
		})
	}
	accepting.Wait()
	<-left
	return nil
}

// addListener makes a listener known to accept.
func (s *session) addListener(l *listener) (uint64, error) {
	number := s.track(l.close)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) >= wire.MaxListen {
		delete(s.cuts, number)
		return 0, fault.New(fault.Exhausted, "this sandbox is listened in on %d sockets already; close some of them", wire.MaxListen)
	}
	s.listeners[number] = l
	return number, nil
}

func (s *session) dropListener(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cuts, number)
	delete(s.listeners, number)
}

// acceptTries bounds how often in a row, and acceptPause after how long, a
// system that lacks something is asked again: others give some back.
const (
	acceptTries = 1000
	acceptPause = 10 * time.Millisecond
)

// accept announces who connects to one socket. It returns nil when the listener
// was closed or the host has gone.
func (l *listener) accept(socket net.Listener, frames *wire.FrameWriter) error {
	failed := 0
	for {
		select {
		case l.room <- struct{}{}:
		case <-l.done:
			return nil
		}
		c, err := socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			<-l.room
			if failed++; failed == acceptTries {
				return err
			}
			time.Sleep(acceptPause)
			continue
		}
		failed = 0
		number, ok := l.hold(c.(halfCloser))
		if !ok {
			return nil
		}
		connected := wire.Connected{Number: number}
		if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			connected.Peer = addr.String()
		}
		if frames.JSON(wire.KindConnected, connected) != nil {
			return nil
		}
	}
}

// accept joins a connection that was announced with the stream.
func (s *session) accept(st *yamux.Stream, args wire.Accept) error {
	s.mu.Lock()
	l := s.listeners[args.Listener]
	s.mu.Unlock()
	if l != nil {
		if c, ok := l.take(args.Number); ok {
			s.connect(st, c)
			return nil
		}
	}
	return fault.New(fault.NotFound, "the connection inside the sandbox is gone")
}
