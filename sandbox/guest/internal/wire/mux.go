package wire

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// streamCloseTimeout is how long a stream that one side has closed waits for
// the other side before it is reset. Both ends close a stream only when they
// are done with both of its directions, so this cuts nothing off; it gives
// back what a peer that never closes would hold for ever.
const streamCloseTimeout = time.Minute

// Host starts multiplexing on the host's side of a stream.
func Host(rwc io.ReadWriteCloser, window int) (*yamux.Session, error) {
	return yamux.Client(&joiner{ReadWriteCloser: &gate{ReadWriteCloser: rwc}}, muxConfig(window))
}

// Guest starts multiplexing on the guest's side of a stream.
func Guest(rwc io.ReadWriteCloser, window int) (*yamux.Session, error) {
	return yamux.Server(&joiner{ReadWriteCloser: rwc}, muxConfig(window))
}

// muxConfig is how yamux runs on both sides. Nothing in it measures time
// except the closing of streams: a paused sandbox answers later, and that must
// not end its connection. Callers bound what they wait for themselves.
func muxConfig(window int) *yamux.Config {
	c := yamux.DefaultConfig()
	c.MaxStreamWindowSize = uint32(window)
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 10 * 365 * 24 * time.Hour
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = streamCloseTimeout
	c.AcceptBacklog = MaxStreams
	c.LogOutput = io.Discard
	return c
}

// The header of yamux: version, type, flags (u16), stream (u32), length (u32).
const (
	muxHeader    = 12
	muxData      = 0
	muxWindow    = 1
	muxPing      = 2
	muxGoAway    = 3
	muxFlagSYN   = 1
	muxMaxLength = Window
)

// joiner sends the header of a data frame together with a short body. yamux
// writes the two separately and always one directly after the other; each
// write of its own costs a system call and wakes the peer once more.
type joiner struct {
	io.ReadWriteCloser
	buf [muxHeader + 8<<10]byte
	// held is the length of the header that waits in buf for its body.
	held int
}

func (j *joiner) Write(p []byte) (int, error) {
	if j.held > 0 {
		held := j.held
		j.held = 0
		if held+len(p) <= len(j.buf) {
			n := copy(j.buf[held:], p)
			_, err := j.ReadWriteCloser.Write(j.buf[:held+n])
			return n, err
		}
		if _, err := j.ReadWriteCloser.Write(j.buf[:held]); err != nil {
			return 0, err
		}
		return j.ReadWriteCloser.Write(p)
	}
	if len(p) == muxHeader && p[1] == muxData && (p[8]|p[9]|p[10]|p[11]) != 0 {
		j.held = copy(j.buf[:], p)
		return len(p), nil
	}
	return j.ReadWriteCloser.Write(p)
}

// gate watches the headers that come from a guest and ends the stream on those
// that yamux would accept but a guest has no business sending: opening
// streams and pinging both make yamux allocate without a bound.
type gate struct {
	io.ReadWriteCloser
	head [muxHeader]byte
	have int   // bytes of head read so far
	skip int64 // bytes of body still to pass
	err  error
}

func (g *gate) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.ReadWriteCloser.Read(p)
	if g.err = g.check(p[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

func (g *gate) check(b []byte) error {
	for len(b) > 0 {
		if g.skip > 0 {
			n := min(g.skip, int64(len(b)))
			g.skip -= n
			b = b[n:]
			continue
		}
		n := copy(g.head[g.have:], b)
		g.have += n
		b = b[n:]
		if g.have < muxHeader {
			return nil
		}
		g.have = 0
		h := g.head
		length := int64(h[8])<<24 | int64(h[9])<<16 | int64(h[10])<<8 | int64(h[11])
		switch {
		case h[0] != 0:
			return Violation("multiplexer version %d", h[0])
		case h[3]&muxFlagSYN != 0:
			return Violation("the guest opens a stream or pings")
		case h[1] == muxData:
			if length > muxMaxLength {
				return Violation("%d bytes at once", length)
			}
			g.skip = length
		case h[1] == muxWindow, h[1] == muxGoAway:
		default:
			return Violation("multiplexer frame of type %d", h[1])
		}
	}
	return nil
}
