package netd

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// half carries the bytes of one direction of a connection. It can be stopped
// at any moment by a deadline in the past, and then knows every byte that it
// has read and not written.
type half struct {
	src, dst *net.TCPConn
	// look judges what passes, and returns what may go on; free says that it
	// need not be asked again. Without it bytes pass through the kernel alone.
	look func(p []byte) (pass []byte, free bool, err error)

	pending []byte // read, and not written
	done    bool   // the end of the stream has been passed on
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// run returns nil when the end of the stream was passed on, and
// os.ErrDeadlineExceeded when it was stopped.
func (h *half) run() error {
	for !h.done {
		if len(h.pending) > 0 {
			n, err := h.dst.Write(h.pending)
			h.pending = h.pending[n:]
			if err != nil {
				return err
			}
		}
		h.pending = nil
		eof, err := h.next()
		if err != nil {
			return err
		}
		if eof {
			// The other side may have closed already, and said what it had to.
			if err := h.dst.CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) {
				return err
			}
			h.done = true
		}
	}
	return nil
}

// next reads something; what is read and not written stays in pending.
func (h *half) next() (eof bool, err error) {
	if h.look == nil {
		h.pending, eof, err = splice(h.dst, h.src)
		return eof, err
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	n, err := h.src.Read(buf[:])
	if n > 0 {
		pass, free, lerr := h.look(buf[:n])
		if lerr != nil {
			return false, lerr
		}
		h.pending = append(h.pending, pass...)
		if free {
			h.look = nil
		}
		return false, nil
	}
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// splice moves bytes from src to dst within the kernel until src ends. What is
// on the way when something stops it comes back as rest.
//
// The standard library does the same, but loses what is in its pipe when the
// receiver is stopped.
func splice(dst, src *net.TCPConn) (rest []byte, eof bool, err error) {
	from, err := src.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	to, err := dst.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	var p *pipe
	defer func() { p.put() }() // the p of then
	for {
		n, err := move(from.Read, func(fd int) (int, error) {
			// A pipe is held only while there is something in it.
			if p == nil {
				var err error
				if p, err = takePipe(); err != nil {
					return 0, err
				}
			}
			n, err := spliceFD(fd, p.w, pipeSize)
			if errors.Is(err, unix.EAGAIN) {
				p.put()
				p = nil
			}
			return n, err
		})
		if err != nil {
			return nil, false, err
		}
		if n == 0 {
			return nil, true, nil
		}
		for p.held = n; p.held > 0; {
			n, err := move(to.Write, func(fd int) (int, error) { return spliceFD(p.r, fd, p.held) })
			if err != nil {
				rest, derr := p.drain()
				return rest, false, errors.Join(err, derr)
			}
			p.held -= n
		}
	}
}

// move does f as soon as the connection is ready for it.
func move(ready func(func(fd uintptr) bool) error, f func(fd int) (int, error)) (n int, err error) {
	rerr := ready(func(fd uintptr) bool {
		n, err = f(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

func spliceFD(from, to, size int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, size, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if !errors.Is(err, unix.EINTR) {
			return int(n), os.NewSyscallError("splice", err)
		}
	}
}

const (
	pipeSize  = 256 << 10
	idlePipes = 32
)

// pipe is where bytes are on their way through the kernel.
type pipe struct{ r, w, held int }

var pipes = make(chan *pipe, idlePipes)

func takePipe() (*pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	// A smaller one serves as well.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{r: fds[0], w: fds[1]}, nil
}

// put gives an empty pipe back and closes one that is not.
func (p *pipe) put() {
	if p == nil {
		return
	}
	if p.held == 0 {
		select {
		case pipes <- p:
			return
		default:
		}
	}
	syscall.Close(p.r)
	syscall.Close(p.w)
}

// drain takes out what is in the pipe.
func (p *pipe) drain() ([]byte, error) {
	b := make([]byte, p.held)
	for at := 0; at < len(b); {
		n, err := unix.Read(p.r, b[at:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return b[:at], os.NewSyscallError("read", err)
		}
		at += max(n, 0)
	}
	p.held = 0
	return b, nil
}
