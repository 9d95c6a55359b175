package agent

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// dialTimeout bounds a connection attempt inside the sandbox.
const dialTimeout = 30 * time.Second

// dial connects to a socket inside the sandbox and joins it with the stream.
func (s *session) dial(st *yamux.Stream, args wire.Dial) error {
	if len(args.Address) > wire.MaxAddress {
		return fault.InvalidField("address", "at most %d bytes are allowed", wire.MaxAddress)
	}
	address := args.Address
	switch args.Network {
	case "tcp":
	case "unix":
		if !strings.HasPrefix(address, "@") { // an abstract socket has no path
			address = s.agent.resolve(address)
		}
	default:
		return fault.InvalidField("network", `must be "tcp" or "unix"`)
	}
	c, err := net.DialTimeout(args.Network, address, dialTimeout)
	if err != nil {
		return dialError(err, address)
	}
	s.connect(st, c.(halfCloser))
	return nil
}

// connect tells the host of a connection and joins it with the stream until
// both have ended.
func (s *session) connect(st *yamux.Stream, c halfCloser) {
	defer c.Close()
	number := s.track(func() { c.Close() })
	defer s.untrack(number)
	if s.reply(st, wire.Dialed{Attachment: number}, nil) {
		join(st, c)
	}
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// join copies both ways until both directions have ended, or one of the ends
// has gone altogether. Each direction ends on its own.
func join(st *yamux.Stream, c halfCloser) {
	var out sync.WaitGroup
	out.Go(func() {
		frames := wire.NewFrameWriter(st)
		if frames.Copy(wire.KindData, c) == nil {
			_ = frames.Fact(wire.KindEOF, nil) // the other direction sees to a loss
			return
		}
		// The socket was reset, or the host has gone: the host learns of the
		// first by the end of the stream without an end of the data.
		st.Close()
		c.Close()
	})
	in := wire.NewFrameReader(st)
	for {
		kind, _, err := in.Next()
		if err == nil && kind == wire.KindEOF {
			_ = c.CloseWrite()
			continue // until the host leaves
		}
		if err != nil || kind != wire.KindData {
			break
		}
		if feedSocket(c, in) != nil {
			break
		}
	}
	st.SetWriteDeadline(longAgo)
	c.Close()
	out.Wait()
}

// feedSocket writes the payload of a frame; a socket that takes no more loses
// it, and an error means the end of the stream.
func feedSocket(c net.Conn, frame *wire.FrameReader) error {
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	open := true
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if err != nil {
			return err
		}
		if open {
			_, err = c.Write(buf.Payload()[:n])
			open = err == nil
		}
	}
	return nil
}

func dialError(err error, address string) error {
	shown := wire.Printable(address, 256)
	code, why := fault.Unavailable, reason(err)
	var dns *net.DNSError
	var addr *net.AddrError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		code, why = fault.Timeout, "connection timed out"
	case errors.As(err, &dns):
		why = "no such host"
	case errors.As(err, &addr):
		return fault.InvalidField("address", "%s is not host:port", shown)
	case errors.Is(err, os.ErrNotExist):
		code, why = fault.NotFound, "no such socket"
	}
	return fault.Wrap(err, code, "connect to %s inside the sandbox: %s", shown, why)
}
