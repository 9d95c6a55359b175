package docker

import (
	"context"
	"sync"
)

// keyed is a set of locks by name. Its zero value is ready.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{} // holds one element while locked
	users int
}

// lock locks the name and returns the function that unlocks it. It gives up
// with the context.
func (k *keyed) lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[name]
	if l == nil {
		if k.locks == nil {
			k.locks = make(map[string]*keyedLock)
		}
		l = &keyedLock{held: make(chan struct{}, 1)}
		k.locks[name] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, name)
		}
	}
	// A context that has ended never gets the lock, even where it is free.
	if err := ctx.Err(); err != nil {
		leave()
		return nil, err
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
