package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How a relay hands its stream over: PID 1 greets it with one byte, by which
// the relay knows it from whoever else may listen at the path, or refuses it
// with another. The relay sends one byte with two descriptors attached, what to
// read from and what to write to. After that neither side says anything; the
// end of the socket is the end of the other.
const (
	greetByte   = 'S'
	refuseByte  = 'N'
	passByte    = 'P'
	passTimeout = 10 * time.Second
)

// listen serves relays until the listener is closed.
func (a *Agent) listen(ctx context.Context, l *net.UnixListener) {
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors or memory: others give some back.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		relays.Go(func() {
			defer c.Close()
			if err := a.serveRelay(ctx, c); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "sandgate guest: relay: %v\n", err)
			}
		})
	}
}

// serveRelay takes over the stream of a relay and serves it. It returns, and
// so closes c, when the host has left; when the relay dies the stream is
// closed, because the driver's way to end a stream is to end the relay.
func (a *Agent) serveRelay(ctx context.Context, c *net.UnixConn) error {
	if err := checkPeer(c); err != nil {
		_, _ = c.Write([]byte{refuseByte})
		return err
	}
	if _, err := c.Write([]byte{greetByte}); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	stream, err := receive(c)
	if err != nil {
		return err
	}
	var watcher sync.WaitGroup
	watcher.Go(func() {
		_, _ = c.Read(make([]byte, 1)) // whatever it is, it is the end
		stream.Close()
	})
	err = a.Serve(ctx, stream)
	c.Close()
	watcher.Wait()
	return err
}

// checkPeer refuses everybody but root of the sandbox: the mode of the socket
// does too, this holds even if somebody changes it.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if cerr != nil {
		return fmt.Errorf("ask who the peer is: %w", cerr)
	}
	if cred.Uid != 0 {
		return fmt.Errorf("user %d is not root of the sandbox", cred.Uid)
	}
	return nil
}

// receive gets the two descriptors of a relay.
func receive(c *net.UnixConn) (*passed, error) {
	if err := c.SetReadDeadline(time.Now().Add(passTimeout)); err != nil {
		return nil, err
	}
	data := make([]byte, 1)
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := c.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, fmt.Errorf("receive the stream: %w", err)
	}
	fds, err := rights(oob[:oobn])
	var files []*os.File
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		// Descriptors that do not block wait in the poller, where Close
		// reaches them.
		err = errors.Join(err, unix.SetNonblock(fd, true))
		files = append(files, os.NewFile(uintptr(fd), "relay"))
	}
	if n != 1 || data[0] != passByte || len(files) != 2 {
		err = errors.Join(err, fmt.Errorf("not a relay (%d descriptors)", len(files)))
	}
	if err = errors.Join(err, c.SetReadDeadline(noDeadline)); err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("receive the stream: %w", err)
	}
	return &passed{in: files[0], out: files[1]}, nil
}

func rights(oob []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range msgs {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// passed is the stream of a relay.
type passed struct {
	in, out *os.File
	once    sync.Once
}

var _ io.ReadWriteCloser = (*passed)(nil)

func (p *passed) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *passed) Write(b []byte) (int, error) { return p.out.Write(b) }

// Close unblocks a Read and a Write that are under way.
func (p *passed) Close() error {
	p.once.Do(func() {
		p.in.Close()
		p.out.Close()
	})
	return nil
}
