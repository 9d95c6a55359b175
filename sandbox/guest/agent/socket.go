package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socket is the path at which relays find PID 1. Root of the sandbox may
// remove or replace what is there, by accident more often than not; then it is
// bound anew, because a sandbox that no relay reaches is lost.
type socket struct {
	path     string
	listener *net.UnixListener
	file     os.FileInfo // what bind has put at path
}

// openSocket binds path, whatever is there.
func openSocket(path string) (*socket, error) {
	s := &socket{path: path}
	if err := s.bind(); err != nil {
		return nil, err
	}
	return s, nil
}

// bind puts a new listener at the path. The one before is left to the caller,
// and nothing changes on an error.
//
// The listener is made under a random name and moved to its place: so its mode
// is right and its identity known before anybody looks for it, and the umask,
// which processes that start at this moment inherit, stays what it is. Until
// the mode is set only its owner can write to the socket and so connect.
func (s *socket) bind() error {
	var random [6]byte
	rand.Read(random[:]) // never fails
	fresh := s.path + "." + hex.EncodeToString(random[:])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return fmt.Errorf("bind %s: %w", s.path, err)
	}
	l.SetUnlinkOnClose(false) // the path may be another's by then
	var file os.FileInfo
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		file, err = os.Lstat(fresh)
	}
	if err == nil {
		err = place(fresh, s.path)
	}
	if err != nil {
		l.Close()
		_ = os.Remove(fresh)
		return fmt.Errorf("bind %s: %w", s.path, err)
	}
	s.listener, s.file = l, file
	return nil
}

// placeTries bounds how many things that are in the way, such as mounts on top
// of each other, place takes away in one go.
const placeTries = 8

// place moves the file at fresh to path. A file there is replaced. A directory
// is moved aside, for it may hold what somebody needs, and a mount is
// detached, which leaves its content alone.
func place(fresh, path string) error {
	for range placeTries {
		err := unix.Rename(fresh, path)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EISDIR) {
			aside := fresh + ".moved"
			if err = unix.Rename(path, aside); err == nil {
				_ = unix.Rmdir(aside) // if it is empty
			}
		}
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err != nil {
			return err
		}
	}
	return unix.EBUSY
}

// bound reports whether the path still is what bind has put there.
func (s *socket) bound() bool {
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(info, s.file)
}

func (s *socket) close() {
	s.listener.Close()
	if s.bound() {
		_ = os.Remove(s.path)
	}
}

// serveSocket serves relays until ctx ends, then closes the socket. It looks
// at the path every Config.SocketCheck and binds it anew when it has been
// removed or replaced; connections that exist go on.
func (a *Agent) serveSocket(ctx context.Context, s *socket) {
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer s.close()
	serve := func(l *net.UnixListener) { listeners.Go(func() { a.listen(ctx, l) }) }
	serve(s.listener)
	check := time.NewTicker(a.cfg.SocketCheck)
	defer check.Stop()
	said := "" // an error that lasts is told once
	for {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		if s.bound() {
			continue
		}
		old := s.listener
		if err := s.bind(); err != nil {
			if said != err.Error() {
				said = err.Error()
				fmt.Fprintf(os.Stderr, "sandgate guest: %v\n", err)
			}
			continue
		}
		said = ""
		serve(s.listener)
		old.Close() // a relay that it has not accepted yet tries again
	}
}
