package guest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

var longAgo = time.Unix(1, 0)

// operation is one operation under way, on a stream of its own.
type operation struct {
	*yamux.Stream
	conn *Conn
	once sync.Once
	left atomic.Bool
}

// errLeft is what is read from, and written to, an operation that the host has
// left itself.
var errLeft = fault.New(fault.Cancelled, "the operation was ended")

// open opens an operation and sends its request. The multiplexer has no
// deadline for that, and a guest that reads nothing blocks it; so it is done
// aside, and the wait for it ends with ctx.
func (c *Conn) open(ctx context.Context, op wire.Op, args any) (*operation, error) {
	raw, err := wire.Marshal(args)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the request cannot be encoded")
	}
	if len(raw) > wire.MaxRequest-64 {
		return nil, fault.New(fault.Invalid, "the request is too large: %d bytes of at most %d", len(raw), wire.MaxRequest-64)
	}
	select {
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	case <-c.done:
		return nil, c.Err()
	case c.slots <- struct{}{}:
	}
	type opened struct {
		o   *operation
		err error
	}
	ch := make(chan opened, 1)
	c.spawn(func() {
		st, err := c.mux.OpenStream()
		if err != nil {
			<-c.slots
			ch <- opened{err: err}
			return
		}
		o := &operation{Stream: st, conn: c}
		err = wire.WriteMessage(st, wire.Request{Op: op, Args: raw}, wire.MaxRequest)
		if err != nil {
			o.leave()
		}
		ch <- opened{o, err}
	})
	select {
	case r := <-ch:
		if r.err != nil {
			return nil, c.streamError(ctx, r.err)
		}
		return r.o, nil
	case <-ctx.Done():
		c.spawn(func() {
			if r := <-ch; r.err == nil {
				r.o.leave()
			}
		})
		return nil, fault.From(ctx.Err())
	}
}

// leave closes the stream, which tells the guest that the host is done with
// it. It does not wait.
func (o *operation) leave() {
	o.once.Do(func() {
		o.left.Store(true)
		o.SetDeadline(longAgo)
		o.conn.spawn(func() {
			o.Close()
			<-o.conn.slots
		})
	})
}

// answer reads the response of the operation.
func (o *operation) answer(ctx context.Context, result any) error {
	stop := context.AfterFunc(ctx, func() { o.SetReadDeadline(longAgo) })
	var response wire.Response
	err := wire.ReadMessage(o, &response, wire.MaxResponse)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline is set or about to be
	}
	if err != nil {
		return o.failed(ctx, err)
	}
	return o.conn.unpack(response, result)
}

// unpack checks a response and decodes its result.
func (c *Conn) unpack(response wire.Response, result any) error {
	if response.Error != nil {
		f, err := checkError(*response.Error)
		if err != nil {
			return c.violated(err)
		}
		return f
	}
	if result == nil {
		return nil
	}
	if err := wire.Unmarshal(response.Result, result); err != nil {
		return c.violated(err)
	}
	return nil
}

// failed says what an error of the stream means.
func (o *operation) failed(ctx context.Context, err error) error {
	if o.left.Load() && !errors.Is(err, wire.ErrProtocol) && !o.conn.mux.IsClosed() {
		return errLeft
	}
	return o.conn.streamError(ctx, err)
}

// streamError says what an error of a stream means that the host has not left.
func (c *Conn) streamError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, wire.ErrProtocol):
		return c.violated(err)
	case c.mux.IsClosed():
		return c.ended()
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, yamux.ErrConnectionReset):
		return c.violated(wire.Violation("the guest ended an operation without an answer"))
	}
	return fault.Wrap(err, fault.Unavailable, "the sandbox's guest cannot be reached")
}

// ended waits for the reason of the end, which is known a moment later.
func (c *Conn) ended() error {
	<-c.done
	return c.Err()
}

// call performs an operation that consists of a request and a response.
func (c *Conn) call(ctx context.Context, op wire.Op, args, result any) error {
	o, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	defer o.leave()
	return o.answer(ctx, result)
}
