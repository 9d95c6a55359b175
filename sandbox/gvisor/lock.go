package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keyedMutex is a mutex for each key in use.
type keyedMutex struct {
	mu    sync.Mutex
	inUse map[string]*keyLock
}

type keyLock struct {
	token chan struct{} // holds one element while locked
	users int           // holders and waiters
}

// lock locks key, or gives up when ctx ends.
func (k *keyedMutex) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.inUse == nil {
		k.inUse = make(map[string]*keyLock)
	}
	l := k.inUse[key]
	if l == nil {
		l = &keyLock{token: make(chan struct{}, 1)}
		k.inUse[key] = l
	}
	l.users++
	k.mu.Unlock()

	release := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.inUse, key)
		}
	}
	select {
	case l.token <- struct{}{}:
		return func() { <-l.token; release() }, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}

// held is a locked sandbox.
type held struct {
	box
	file   *os.File
	unlock func()
}

func (h *held) release() {
	h.file.Close()
	h.unlock()
}

// lockFile takes an exclusive lock on the file at path, which is made when
// missing and lasts until the file and every inherited copy of its descriptor
// is closed. Someone else
// holds it only when a server died with a launcher under way, or when two
// servers share a state directory, so asking again now and then will do.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return f, nil
		}
		f.Close()
		switch {
		case err == nil: // removed, and perhaps made again, while we waited
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("lock sandbox: %w", err)
		default:
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-tick.C:
			}
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
