package docker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// A relay that is being started when its container is paused is caught half
// way: it cannot run, the engine waits for it with locks held, and nothing can
// let the container go any more. So a sandbox is paused only when no relay is
// being started in it, and none is started while it is about to be paused.

// gate keeps those who dial a sandbox from the one who pauses it. Its zero
// value is ready.
type gate struct {
	mu    sync.Mutex
	doors map[string]*door
}

type door struct {
	within  int                  // dials under way
	shut    bool                 // somebody pauses, or waits to
	changed chan struct{}        // closed and replaced at each change
	relays  map[string]time.Time // which may not have started yet, and since when
}

// door returns the door of a sandbox; the gate's lock is held.
func (g *gate) door(id string) *door {
	if g.doors == nil {
		g.doors = make(map[string]*door)
	}
	p := g.doors[id]
	if p == nil {
		p = &door{changed: make(chan struct{}), relays: make(map[string]time.Time)}
		g.doors[id] = p
	}
	return p
}

// change tells those who wait, and forgets a door that says nothing.
func (g *gate) change(id string, p *door) {
	close(p.changed)
	p.changed = make(chan struct{})
	if p.within == 0 && !p.shut && len(p.relays) == 0 {
		delete(g.doors, id)
	}
}

// pass waits until done agrees, which it does with the lock held.
func (g *gate) pass(ctx context.Context, id string, done func(*door) bool) error {
	for {
		g.mu.Lock()
		p := g.door(id)
		if done(p) {
			g.mu.Unlock()
			return nil
		}
		changed := p.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fault.From(ctx.Err())
		}
	}
}

// enter is for who dials. It returns what ends the dial, with the relay that
// may not have started yet, if there is one.
func (g *gate) enter(ctx context.Context, id string) (leave func(relay string), err error) {
	err = g.pass(ctx, id, func(p *door) bool {
		if !p.shut {
			p.within++
		}
		return !p.shut
	})
	return func(relay string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		p := g.door(id)
		p.within--
		if relay != "" {
			p.relays[relay] = time.Now()
		}
		g.change(id, p)
	}, err
}

// started forgets a relay that is known to run, or to have run.
func (g *gate) started(id, relay string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.doors[id]
	if p == nil {
		return
	}
	if _, ok := p.relays[relay]; ok {
		delete(p.relays, relay)
		g.change(id, p)
	}
}

// shut is for who pauses: it lets nobody in, waits for those within and
// returns the relays they have started.
func (g *gate) shut(ctx context.Context, id string) (relays map[string]time.Time, open func(), err error) {
	g.mu.Lock()
	g.door(id).shut = true
	g.mu.Unlock()
	open = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		p := g.door(id)
		p.shut = false
		g.change(id, p)
	}
	err = g.pass(ctx, id, func(p *door) bool {
		relays = maps.Clone(p.relays)
		return p.within == 0
	})
	if err != nil {
		open()
	}
	return relays, open, err
}

// forget is for who removes a sandbox.
func (g *gate) forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.doors[id]; p != nil {
		clear(p.relays)
		g.change(id, p)
	}
}

// A relay takes a moment to start. One that the engine has not begun to start
// by a good while later was given up by who asked for it.
const (
	relayPatience = 10 * time.Second
	relayBegins   = 2 * time.Second
)

// calm waits until no relay is being started in a sandbox, and sees to it that
// none is until open is called.
func (d *Driver) calm(ctx context.Context, id string) (open func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, relayPatience)
	defer cancel()
	relays, open, err := d.dials.shut(ctx, id)
	if err != nil {
		return nil, err
	}
	for relay, since := range relays {
		if err := d.awaitRelay(ctx, relay, since); err != nil {
			open()
			return nil, err
		}
		d.dials.started(id, relay)
	}
	return open, nil
}

// awaitRelay waits until a relay runs or has ended. The engine has no event
// that says so.
func (d *Driver) awaitRelay(ctx context.Context, relay string, since time.Time) error {
	for {
		r, err := d.cli.ExecInspect(ctx, relay, client.ExecInspectOptions{})
		switch {
		case errdefs.IsNotFound(err), errdefs.IsConflict(err):
			return nil
		case err != nil:
			return d.engineError(ctx, err, "look at a relay")
		case r.PID != 0 || !r.Running && (r.ExitCode != 0 || time.Since(since) > relayBegins):
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fault.From(ctx.Err())
		}
	}
}
