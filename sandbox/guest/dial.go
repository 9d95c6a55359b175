package guest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Stream is a full-duplex byte stream with half-close.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Dial connects to a socket inside the sandbox; network is "tcp" or "unix".
// The error of a refused connection says so. ctx bounds the connecting.
//
// Codes: Invalid for another network or a malformed address, Unavailable when
// the connection is refused, NotFound when there is no such unix socket,
// Timeout.
func (c *Conn) Dial(ctx context.Context, network, address string) (Stream, error) {
	return c.socket(ctx, wire.OpDial, wire.Dial{Network: network, Address: address})
}

// socket performs an operation whose stream becomes a connection.
func (c *Conn) socket(ctx context.Context, op wire.Op, args any) (Stream, error) {
	o, err := c.open(ctx, op, args)
	if err != nil {
		return nil, err
	}
	s := &socket{op: o, in: wire.NewFrameReader(o), out: wire.NewFrameWriter(o), closed: make(chan struct{})}
	if err := o.answer(ctx, &s.dialed); err != nil {
		o.leave()
		return nil, err
	}
	return s, nil
}

// socket is a connection inside the sandbox.
type socket struct {
	op     *operation
	out    *wire.FrameWriter
	dialed wire.Dialed

	readMu sync.Mutex
	in     *wire.FrameReader
	err    error // the end of reading

	readAll, sentAll atomic.Bool // the two directions have come to their ends

	close  sync.Once
	closed chan struct{}
}

func (s *socket) Read(b []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if s.err != nil || len(b) == 0 {
		return 0, s.err
	}
	for s.in.Left() == 0 {
		kind, _, err := s.in.Next()
		switch {
		case err != nil:
			s.err = s.broken(err)
		case kind == wire.KindEOF:
			s.err = io.EOF
			s.readAll.Store(true)
		case kind != wire.KindData:
			s.err = s.op.conn.violated(wire.Violation("frame of kind %d in a connection", kind))
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	n, err := s.in.Read(b)
	if err != nil {
		s.err = s.broken(err)
	}
	return n, s.err
}

func (s *socket) Write(b []byte) (int, error) {
	n, err := s.out.Data(wire.KindData, b)
	if err != nil {
		err = s.broken(err)
	}
	return n, err
}

// CloseWrite ends the data in the direction of the sandbox.
func (s *socket) CloseWrite() error {
	if err := s.out.Fact(wire.KindEOF, nil); err != nil {
		return s.broken(err)
	}
	s.sentAll.Store(true)
	return nil
}

// broken says what an error of the stream means to who uses the connection.
func (s *socket) broken(err error) error {
	select {
	case <-s.closed:
		return io.ErrClosedPipe
	default:
	}
	if !s.op.conn.mux.IsClosed() && (errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrConnectionReset)) {
		// The guest ends the stream without an end of the data when the
		// connection it stands for has broken.
		return fault.Wrap(err, fault.Unavailable, "the connection inside the sandbox was reset")
	}
	return s.op.failed(context.Background(), err)
}

// Close ends both directions. Where both have ended already it takes nothing
// back: what was sent may still be on its way into the sandbox.
func (s *socket) Close() error {
	s.close.Do(func() {
		close(s.closed)
		if s.sentAll.Load() && s.readAll.Load() {
			s.op.leave()
			return
		}
		c := s.op.conn
		s.op.SetDeadline(longAgo)
		c.spawn(func() {
			// The end of the stream says the same, but waits behind data that
			// nobody in the sandbox reads.
			_ = c.call(context.Background(), wire.OpDetach, wire.Detach{Attachment: s.dialed.Attachment}, nil)
			s.op.leave()
		})
	})
	return nil
}
