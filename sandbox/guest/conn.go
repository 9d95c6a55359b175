package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Conn is the host's connection to the guest of one sandbox. It is safe for
// concurrent use.
type Conn struct {
	mux   *yamux.Session
	hello Hello
	// slots bounds the operations under way, so that a guest that answers
	// nothing cannot make them pile up.
	slots chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	err    error // why it ended, when that was not Close
	closed bool
	// work counts goroutines that end by themselves once the connection has.
	work sync.WaitGroup
}

// Connect performs the handshake on a stream that a driver opened and takes
// ownership of it. ctx bounds the handshake.
func Connect(ctx context.Context, stream io.ReadWriteCloser) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	offer := wire.Offer{Oldest: wire.OldestVersion, Newest: wire.NewestVersion, Window: wire.Window}
	answer, err := shakeHands(stream, offer)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stream.Close()
		return nil, handshakeError(err)
	}
	mux, err := wire.Host(stream, answer.Window)
	if err != nil {
		stream.Close()
		return nil, handshakeError(err)
	}
	c := &Conn{
		mux:   mux,
		hello: Hello{Protocol: answer.Protocol, Version: answer.Version, BootID: answer.BootID},
		slots: make(chan struct{}, wire.MaxStreams/2),
		done:  make(chan struct{}),
	}
	go c.watch()
	return c, nil
}

func shakeHands(rw io.ReadWriter, offer wire.Offer) (wire.Answer, error) {
	if err := wire.WriteOffer(rw, offer); err != nil {
		return wire.Answer{}, err
	}
	answer, err := wire.ReadAnswer(rw, offer)
	if err == nil && answer.Error != "" {
		err = fault.New(fault.Unsupported, "the sandbox's guest speaks protocol %d and this sandgate %d to %d; stop the sandbox and start it again to renew its guest",
			answer.Protocol, wire.OldestVersion, wire.NewestVersion)
	}
	return answer, err
}

func handshakeError(err error) error {
	switch {
	case errors.Is(err, wire.ErrProtocol):
		return fault.Wrap(err, fault.Unavailable, "what answers in the sandbox is not its guest; restart the sandbox")
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "the sandbox's guest did not answer in time")
	case errors.Is(err, context.Canceled):
		return fault.From(err)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	return fault.Wrap(err, fault.Unavailable, "the sandbox's guest does not answer; it may have stopped")
}

// watch waits for the end. A guest that opened a stream would end it too, but
// the multiplexer's gate is there first.
func (c *Conn) watch() {
	defer close(c.done)
	_, err := c.mux.AcceptStream()
	if errors.Is(err, wire.ErrProtocol) {
		c.note(err)
	}
	c.mux.Close()
}

// note keeps the first reason for the end.
func (c *Conn) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fault.Wrap(errors.Join(ErrLost, err), fault.Unavailable, "the sandbox's guest broke the protocol and was disconnected")
	}
}

// violated ends the connection because of something the guest sent.
func (c *Conn) violated(err error) error {
	c.note(err)
	c.mux.Close()
	return c.Err()
}

// Err is nil while the connection lives, and wraps ErrLost afterwards.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.mux.IsClosed() {
		return ErrLost
	}
	return c.err
}

// Hello returns what the guest said of itself.
func (c *Conn) Hello() Hello { return c.hello }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection; processes go on. Operations under way return
// ErrLost. Closing twice does nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.mux.Close()
	<-c.done
	c.work.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for. After Close, f finds the
// multiplexer closed and ends at once.
func (c *Conn) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go f()
		return
	}
	c.work.Go(f)
}

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	return c.call(ctx, wire.OpPing, nil, nil)
}

// List returns the processes that were started over any connection and are
// still running, or finished and not collected.
func (c *Conn) List(ctx context.Context) ([]Info, error) {
	var raw json.RawMessage
	if err := c.call(ctx, wire.OpList, nil, &raw); err != nil {
		return nil, err
	}
	infos, err := readInfos(raw)
	if err != nil {
		return nil, c.violated(err)
	}
	return infos, nil
}

// Signal sends the named signal ("TERM") to the process group of id, for a
// terminal to its foreground group.
//
// Codes: Invalid for an unknown signal, NotFound, State when it has ended.
func (c *Conn) Signal(ctx context.Context, id, signal string) error {
	if wire.SignalNumber(signal) == 0 {
		return fault.InvalidField("signal", "there is no signal %q", wire.Printable(signal, 32))
	}
	return c.call(ctx, wire.OpSignal, wire.Signal{ID: id, Signal: signal}, nil)
}

// SignalSession sends the named signal to every process of the session that id
// leads, whatever groups a shell has made in it. Codes are those of Signal.
func (c *Conn) SignalSession(ctx context.Context, id, signal string) error {
	if wire.SignalNumber(signal) == 0 {
		return fault.InvalidField("signal", "there is no signal %q", wire.Printable(signal, 32))
	}
	return c.call(ctx, wire.OpSignal, wire.Signal{ID: id, Signal: signal, Session: true}, nil)
}

// Forget lets the guest drop a process that was started with Command.Keep and
// has ended. Its id is free again.
//
// Codes: NotFound, State when it has not ended, Unsupported by an older guest,
// which keeps nothing.
func (c *Conn) Forget(ctx context.Context, id string) error {
	return c.call(ctx, wire.OpForget, wire.Target{ID: id}, nil)
}

// Shutdown asks PID 1 to end every process and exit, and waits until the
// connection has ended.
func (c *Conn) Shutdown(ctx context.Context) error {
	if err := c.call(ctx, wire.OpShutdown, nil, nil); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

func signalNumber(name string) int { return wire.SignalNumber(name) }
