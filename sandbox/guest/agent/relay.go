package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A relay may be run before PID 1 listens, or while its socket is missing or
// somebody else's, which PID 1 mends within Config.SocketCheck: patience is
// several times as long.
const (
	relayPatience = 10 * time.Second
	relayRetry    = 2 * time.Millisecond
	// greetingWait is how long the first listener that says nothing gets; each
	// one after it gets twice as long, since PID 1 may be slow.
	greetingWait = 250 * time.Millisecond
)

var (
	errRefused    = errors.New("PID 1 refuses this user: permission denied")
	errNoGreeting = errors.New("what listens there is not PID 1 of the sandbox")
)

// relay passes the descriptors in and out to PID 1 and stays as the handle
// whose death ends the connection. It copies nothing.
func relay(socket string, in, out int) error {
	c, err := dialInit(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := c.WriteMsgUnix([]byte{passByte}, unix.UnixRights(in, out), nil); err != nil {
		return fmt.Errorf("pass the stream: %w", err)
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

// dialInit connects to PID 1 and has its greeting.
func dialInit(socket string) (*net.UnixConn, error) {
	deadline := time.Now().Add(relayPatience)
	wait := greetingWait
	for {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil {
			limit := time.Now().Add(wait)
			if limit.After(deadline) {
				limit = deadline
			}
			if err = greeted(c, limit); err == nil {
				return c, nil
			}
			c.Close()
			if errors.Is(err, unix.ETIMEDOUT) {
				wait *= 2
			}
		}
		if !mended(err) || time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(relayRetry)
	}
}

// greeted waits for the first byte of PID 1 until limit.
func greeted(c *net.UnixConn, limit time.Time) error {
	if err := c.SetReadDeadline(limit); err != nil {
		return err
	}
	var b [1]byte
	_, err := c.Read(b[:])
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", errNoGreeting, unix.ETIMEDOUT)
	case err == nil && b[0] == refuseByte:
		return errRefused
	case err != nil || b[0] != greetByte:
		return errNoGreeting
	}
	return c.SetReadDeadline(noDeadline)
}

// mended reports whether an error is one that PID 1 puts right: nothing is at
// the path, or what is there is not its listener, or has just ceased to be.
func mended(err error) bool {
	for _, e := range []error{errNoGreeting, unix.ENOENT, unix.ECONNREFUSED, unix.EPROTOTYPE, unix.EAGAIN, unix.ELOOP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
