package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// sweep removes the builds whose processes are gone: their locks are free.
func (s *layerStore) sweep() error {
	unlock, err := s.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), buildPrefix) {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) { // its owner was faster
			continue
		}
		if err != nil {
			return err
		}
		if tryLock(f) == nil {
			s.log.Info("removing an abandoned build", "path", path)
			err = s.removeBuild(path)
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// lockStore serialises the moments in which builds appear, become layers and
// are swept, and the writing of references. It is never held for long.
func (s *layerStore) lockStore() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.locks(), "store"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := retryEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the layer store: %w", err)
	}
	return func() { f.Close() }, nil
}

// lock takes the lock of a runtime among processes. waiting is called once
// when another one has it.
func (s *layerStore) lock(ctx context.Context, runtime string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.locks(), runtime), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, storeError(err, s.dir)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for told := false; ; {
		err := tryLock(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, storeError(err, s.dir)
		}
		if !told {
			waiting()
			told = true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			f.Close()
			return nil, fault.From(ctx.Err())
		}
	}
}

func tryLock(f *os.File) error {
	return retryEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
