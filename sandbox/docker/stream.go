package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Dial implements driver.Driver: it runs the relay in the container, attached
// to a connection of its own.
func (d *Driver) Dial(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	if !driver.ValidID(id) {
		return nil, notFound(id)
	}
	for began := time.Now(); ; {
		s, err := d.dial(ctx, id)
		if !fault.Is(err, fault.State) || time.Since(began) > pauseSettles {
			return s, err
		}
		// It does not run, or is held still by nobody.
		o, ierr := d.inspect(ctx, id)
		if ierr != nil || o.State == nil || !o.State.Running {
			return nil, err
		}
		if err := d.wake(ctx, id); err != nil {
			return nil, err
		}
	}
}

func (d *Driver) dial(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	relay := ""
	leave, err := d.dials.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { leave(relay) }()
	exec, err := d.cli.ExecCreate(ctx, d.container(id), client.ExecCreateOptions{
		User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true,
		WorkingDir: "/", Cmd: []string{driver.GuestPath, "relay"},
	})
	switch {
	case errdefs.IsNotFound(err):
		// No container: nothing, or the rest of something.
		if _, err := d.inspect(ctx, id); err != nil {
			return nil, err
		}
		return nil, stateFault(id, err)
	case errdefs.IsConflict(err):
		return nil, stateFault(id, err)
	case err != nil:
		return nil, d.engineError(ctx, err, "open a stream")
	}
	relay = exec.ID // whatever comes of it
	attached, err := d.cli.ExecAttach(ctx, exec.ID, client.ExecAttachOptions{})
	switch {
	case errdefs.IsConflict(err), errdefs.IsNotFound(err): // it ended meanwhile
		return nil, stateFault(id, err)
	case err != nil:
		return nil, d.engineError(ctx, err, "open a stream")
	}
	s := &stream{conn: attached.Conn, frames: attached.Reader, started: func() { d.dials.started(id, exec.ID) }}
	s.leave = d.enter(id, s)
	return s, nil
}

// enter notes an open stream, until the function it returns is called.
func (d *Driver) enter(id string, s *stream) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams[id] == nil {
		d.streams[id] = make(map[*stream]struct{})
	}
	d.streams[id][s] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.streams[id], s)
		if len(d.streams[id]) == 0 {
			delete(d.streams, id)
		}
	}
}

// cutStreams ends every stream into a sandbox that is about to be killed. An
// engine does not notice the end of a container while it waits for a client
// to read the output of the container's relay.
func (d *Driver) cutStreams(id string) {
	d.mu.Lock()
	var open []*stream
	for s := range d.streams[id] {
		open = append(open, s)
	}
	d.mu.Unlock()
	for _, s := range open {
		_ = s.Close() // it is the other end that matters
	}
}

func stateFault(id string, cause error) error {
	return fault.Wrap(cause, fault.State, "sandbox %s does not run", id).About("sandbox")
}

// The kinds of frames in which an engine sends output without a terminal: a
// kind, three zero bytes, and the length of what follows, big endian.
const (
	frameHeader = 8
	frameStdout = 1
	frameError  = 3 // an error of the engine itself; the highest kind
)

// stream is the relay's standard input and output.
type stream struct {
	conn   net.Conn
	closed sync.Once
	leave  func() // called once, by Close

	started func() // called when the relay has said something

	// For Read alone.
	frames *bufio.Reader
	left   uint32 // of the frame under way
	kind   byte
	spoke  bool   // the relay has written something
	noise  []byte // the beginning of what came on standard error
}

// maxNoise bounds what is kept of the standard error of a relay.
const maxNoise = 512

// Read returns standard output. What a sandbox sends is never held in memory
// by its length; standard error is thrown away as it comes.
func (s *stream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := s.read(b)
	if err != nil {
		// Whoever writes would wait for ever: the engine keeps the connection
		// and takes nothing more from it.
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return n, err
}

func (s *stream) read(b []byte) (int, error) {
	for {
		for s.left == 0 {
			if err := s.nextFrame(); err != nil {
				return 0, err
			}
		}
		if s.kind == frameStdout {
			n, err := s.frames.Read(b[:min(len(b), int(s.left))])
			s.left -= uint32(n)
			if n > 0 && !s.spoke {
				s.spoke = true
				s.started()
			}
			return n, cut(err)
		}
		if err := s.skip(); err != nil {
			return 0, err
		}
	}
}

func (s *stream) nextFrame() error {
	var h [frameHeader]byte
	if _, err := io.ReadFull(s.frames, h[:]); err != nil {
		if errors.Is(err, io.EOF) && !s.spoke && len(s.noise) > 0 {
			return fmt.Errorf("the relay could not run: %s", oneLine(string(s.noise)))
		}
		return err
	}
	if h[0] > frameError || h[1]|h[2]|h[3] != 0 {
		return fmt.Errorf("the engine sent a frame that begins with % x", h)
	}
	s.kind, s.left = h[0], binary.BigEndian.Uint32(h[4:])
	return nil
}

// skip throws away what is at hand of a frame that is not standard output.
func (s *stream) skip() error {
	if s.frames.Buffered() == 0 {
		if _, err := s.frames.Peek(1); err != nil {
			return cut(err)
		}
	}
	n := min(s.frames.Buffered(), int(s.left))
	if room := maxNoise - len(s.noise); room > 0 {
		seen, _ := s.frames.Peek(min(n, room)) // buffered, so it cannot fail
		s.noise = append(s.noise, seen...)
	}
	_, err := s.frames.Discard(n)
	s.left -= uint32(n)
	return err
}

// cut is what an end means in the middle of a frame.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write writes to standard input.
func (s *stream) Write(b []byte) (int, error) { return s.conn.Write(b) }

// Close ends the stream: the engine ends the relay's standard input, by which
// the guest sees that the host has left.
func (s *stream) Close() error {
	var err error
	s.closed.Do(func() {
		s.leave()
		err = s.conn.Close()
	})
	return err
}
