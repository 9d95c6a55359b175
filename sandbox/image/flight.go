package image

import (
	"context"
	"sync"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxReplay bounds how many progress lines of a build are kept for those who
// join it late.
const maxReplay = 256

// flight is one build that any number of callers wait for. It goes on as long
// as one of them does.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{} // closed after layer and err are set

	mu      sync.Mutex
	waiters int
	lines   []string
	changed chan struct{} // closed and replaced with every line

	layer Layer
	err   error
}

// say adds a progress line for everyone who waits.
func (f *flight) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lines) == maxReplay {
		return
	}
	f.lines = append(f.lines, line)
	close(f.changed)
	f.changed = make(chan struct{})
}

// follow reports the flight's progress from its beginning and returns its
// result. The caller has been counted as a waiter. When ctx ends and nobody
// else waits, the build is cancelled, and follow returns after it has cleaned
// up.
func (f *flight) follow(ctx context.Context, progress func(string)) (Layer, error) {
	seen := 0
	for {
		f.mu.Lock()
		news, changed := f.lines[seen:len(f.lines):len(f.lines)], f.changed
		f.mu.Unlock()
		for _, line := range news {
			progress(line)
		}
		seen += len(news)
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-f.done:
			// done comes after the last line, but this select may have seen
			// it before the lines it was woken for.
			f.mu.Lock()
			news = f.lines[seen:]
			f.mu.Unlock()
			for _, line := range news {
				progress(line)
			}
			return f.layer, f.err
		case <-ctx.Done():
			f.mu.Lock()
			f.waiters--
			last := f.waiters == 0
			f.mu.Unlock()
			if last {
				f.cancel()
				<-f.done
			}
			return Layer{}, fault.From(ctx.Err())
		}
	}
}

// share returns the layer of a runtime that build makes, together with every
// other caller that wants the same one at the same time.
func (c *Catalog) share(ctx context.Context, id string, progress func(string), build func(ctx context.Context, say func(string)) (Layer, error)) (Layer, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Layer{}, fault.From(err)
		}
		f, joined := c.join(id, build)
		if f == nil {
			return Layer{}, fault.New(fault.Unavailable, "the server is shutting down")
		}
		if joined {
			return f.follow(ctx, progress)
		}
		// A build that everybody has left is ending; the next one must not
		// start before it has cleaned up.
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
}

// join counts the caller as a waiter of the flight for id, starting one if
// there is none. It returns nil when the catalog is closed, and the flight
// with false when that one is being abandoned.
func (c *Catalog) join(id string, build func(ctx context.Context, say func(string)) (Layer, error)) (*flight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, false
	}
	if f := c.flights[id]; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.waiters == 0 {
			return f, false
		}
		f.waiters++
		return f, true
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.BuildTimeout)
	f := &flight{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}), waiters: 1}
	c.flights[id] = f
	c.builds.Go(func() {
		defer cancel()
		f.layer, f.err = build(ctx, f.say)
		c.mu.Lock()
		delete(c.flights, id)
		c.mu.Unlock()
		close(f.done)
	})
	return f, true
}
