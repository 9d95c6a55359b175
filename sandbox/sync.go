package sandbox

import (
	"context"
	"sync"
)

// keyedMutex is one mutex per key. The zero value is ready.
type keyedMutex struct {
	mu sync.Mutex
	m  map[string]*keyedLock
}

type keyedLock struct {
	sem  chan struct{}
	refs int
}

// lock waits for the key's mutex or the end of ctx; unlock releases it.
func (k *keyedMutex) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[string]*keyedLock{}
	}
	l := k.m[key]
	if l == nil {
		l = &keyedLock{sem: make(chan struct{}, 1)}
		k.m[key] = l
	}
	l.refs++
	k.mu.Unlock()
	drop := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.m, key)
		}
	}
	select {
	case l.sem <- struct{}{}:
		return func() { <-l.sem; drop() }, nil
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
}

// pulse lets any number of goroutines wait for "something has changed".
type pulse struct {
	mu sync.Mutex
	ch chan struct{}
}

func newPulse() *pulse { return &pulse{ch: make(chan struct{})} }

// next returns a channel that is closed at the next beat. Take it before
// looking at the state, so that no change slips between.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ch
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.ch)
	p.ch = make(chan struct{})
}
