package modeltest

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// gate stands between an engine and a driver. When the server dies it lets
// nothing through any more.
type gate struct {
	driver.Driver
	onDeath func()

	mu     sync.Mutex
	left   int  // calls until death; 0: none is arranged
	effect bool // death comes after the call has had its effect
	dying  bool // nobody hears answers any more
	dead   bool // and the driver does nothing more
}

func newGate(d driver.Driver, onDeath func()) *gate { return &gate{Driver: d, onDeath: onDeath} }

var errDead = fault.New(fault.Unavailable, "the server has died")

// die ends the server's life now. It may be called again. The store goes first:
// what a driver that does nothing any more would lead the engine to write down
// must not be written.
func (g *gate) die() {
	g.mu.Lock()
	was := g.dying
	g.dying = true
	g.mu.Unlock()
	if was {
		return
	}
	g.onDeath()
	g.mu.Lock()
	g.dead = true
	g.mu.Unlock()
}

func (g *gate) died() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dying
}

// dieAfter arranges for death at the n-th call from now.
func (g *gate) dieAfter(n int, effect bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.effect = n, effect
}

// pass runs one call of the driver, or the server's death in its place.
func (g *gate) pass(call func() error) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return errDead
	}
	last := g.left == 1
	if g.left > 0 {
		g.left--
	}
	effect := g.effect
	g.mu.Unlock()
	if last && !effect {
		g.die()
		return errDead
	}
	err := call()
	if last {
		g.die()
	}
	if g.died() {
		return errDead // whatever it was, nobody is there to hear it
	}
	return err
}

func (g *gate) Create(ctx context.Context, s driver.Spec) error {
	return g.pass(func() error { return g.Driver.Create(ctx, s) })
}

func (g *gate) Start(ctx context.Context, id string) error {
	return g.pass(func() error { return g.Driver.Start(ctx, id) })
}

func (g *gate) Dial(ctx context.Context, id string) (s io.ReadWriteCloser, err error) {
	err = g.pass(func() error { s, err = g.Driver.Dial(ctx, id); return err })
	if err != nil && s != nil {
		s.Close()
	}
	return s, err
}

func (g *gate) Stop(ctx context.Context, id string, grace time.Duration) error {
	return g.pass(func() error { return g.Driver.Stop(ctx, id, grace) })
}

func (g *gate) Remove(ctx context.Context, id string) error {
	return g.pass(func() error { return g.Driver.Remove(ctx, id) })
}

func (g *gate) Save(ctx context.Context, id, dir string) error {
	return g.saver(func(s driver.Saver) error { return s.Save(ctx, id, dir) })
}

func (g *gate) Restore(ctx context.Context, id, dir string) error {
	return g.saver(func(s driver.Saver) error { return s.Restore(ctx, id, dir) })
}

func (g *gate) Export(ctx context.Context, dir string, w io.Writer) error {
	return g.saver(func(s driver.Saver) error { return s.Export(ctx, dir, w) })
}

func (g *gate) Import(ctx context.Context, dir string, r io.Reader, limit int64) error {
	return g.saver(func(s driver.Saver) error { return s.Import(ctx, dir, r, limit) })
}

func (g *gate) Discard(ctx context.Context, dir string) error {
	return g.saver(func(s driver.Saver) error { return s.Discard(ctx, dir) })
}

func (g *gate) saver(call func(driver.Saver) error) error {
	return g.pass(func() error {
		if s, ok := g.Driver.(driver.Saver); ok {
			return call(s)
		}
		return fault.New(fault.Unsupported, "this driver keeps no layers")
	})
}

func (g *gate) Suspend(ctx context.Context, id string) error {
	return g.pass(func() error {
		if s, ok := g.Driver.(driver.Suspender); ok {
			return s.Suspend(ctx, id)
		}
		return fault.New(fault.Unsupported, "this driver keeps no memory")
	})
}

func (g *gate) Resume(ctx context.Context, id string) (how driver.Resumption, err error) {
	err = g.pass(func() error {
		if s, ok := g.Driver.(driver.Suspender); ok {
			how, err = s.Resume(ctx, id)
			return err
		}
		return g.Driver.Start(ctx, id)
	})
	return how, err
}

func (g *gate) Resize(ctx context.Context, id string, l driver.Limits) error {
	return g.pass(func() error {
		if s, ok := g.Driver.(driver.Resizer); ok {
			return s.Resize(ctx, id, l)
		}
		return fault.New(fault.Unsupported, "this driver changes no limits")
	})
}

// Usage and Leftovers have no effect that a death could cut.
func (g *gate) Usage(ctx context.Context, id string) (driver.Usage, error) {
	if s, ok := g.Driver.(driver.Stats); ok && !g.died() {
		return s.Usage(ctx, id)
	}
	return driver.Usage{}, errDead
}

func (g *gate) Leftovers(ctx context.Context, fix bool) ([]string, error) {
	if c, ok := g.Driver.(driver.Cleaner); ok && !g.died() {
		return c.Leftovers(ctx, fix)
	}
	return nil, nil
}
