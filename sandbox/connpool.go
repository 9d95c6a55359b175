package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// connectTimeout bounds opening the stream and the handshake with a guest.
const connectTimeout = 20 * time.Second

// connPool keeps one guest connection per sandbox and opens it again when it
// was lost.
type connPool struct {
	driver driver.Driver
	locks  keyedMutex

	mu     sync.Mutex
	conns  map[string]*guest.Conn
	closed bool
}

func newConnPool(d driver.Driver) *connPool {
	return &connPool{driver: d, conns: map[string]*guest.Conn{}}
}

// get returns a live connection to the guest of a running sandbox.
func (p *connPool) get(ctx context.Context, id string) (*guest.Conn, error) {
	if c := p.live(id); c != nil {
		return c, nil
	}
	unlock, err := p.locks.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c := p.live(id); c != nil {
		return c, nil
	}
	dctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	silent := func(err error) error {
		if dctx.Err() == nil || ctx.Err() != nil {
			return err
		}
		return fault.Wrap(errors.Join(err, dctx.Err()), fault.Unavailable, "sandbox %s does not answer; try again, or see with get whether it still runs", id).About("sandbox")
	}
	stream, err := p.driver.Dial(dctx, id)
	if err != nil {
		return nil, silent(err)
	}
	c, err := guest.Connect(dctx, stream)
	if err != nil {
		stream.Close()
		return nil, silent(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return nil, fault.New(fault.Unavailable, "the server is stopping")
	}
	p.conns[id] = c
	return c, nil
}

// live returns the connection of id if it has not ended.
func (p *connPool) live(id string) *guest.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[id]
	if c == nil {
		return nil
	}
	select {
	case <-c.Done():
		delete(p.conns, id)
		return nil
	default:
		return c
	}
}

// drop closes the connection of a sandbox that is going away.
func (p *connPool) drop(id string) {
	p.mu.Lock()
	c := p.conns[id]
	delete(p.conns, id)
	p.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// hold closes the connection of a sandbox and lets nobody open another one
// until release is called, which may be called again.
func (p *connPool) hold(ctx context.Context, id string) (release func(), err error) {
	unlock, err := p.locks.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	p.drop(id)
	return sync.OnceFunc(unlock), nil
}

func (p *connPool) closeAll() {
	p.mu.Lock()
	p.closed = true
	all := p.conns
	p.conns = map[string]*guest.Conn{}
	p.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}
