package agent

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

const (
	// pipeSize is what a pipe is enlarged to when a process turns out to
	// move much through it. It is refused where a user's pipes hold too much
	// already, and then nothing is lost but speed.
	pipeSize = 1 << 20
	// bulk is the size of a read or write that says so.
	bulk = 32 << 10
	// drainLimit bounds what is read from a terminal after its time is up.
	drainLimit = 1 << 20
)

// A process that writes in small pieces, one after the other, would have this
// one woken for each of them, and the change between the two costs more than
// the piece. So after a run of small reads in quick succession the reader stands
// back for a moment and finds many pieces at once.
const (
	standBackAfter = 16                     // small reads in quick succession
	quickly        = time.Millisecond       // from one read to the next
	standBack      = 300 * time.Microsecond // nobody notices; the pipe has room for more
)

// pacer tells when to stand back.
type pacer struct {
	last  time.Time
	small int
}

func (c *pacer) shouldStandBack(n int) bool {
	now := time.Now()
	if n >= bulk || now.Sub(c.last) > quickly {
		c.small = 0
	}
	c.small++
	c.last = now
	return c.small > standBackAfter
}

// pump moves one output into the ring until it ends. While there is nothing to
// read it holds no buffer.
func (p *process) pump(out output) {
	if out.file != p.master {
		defer out.file.Close()
	}
	raw, err := out.file.SyscallConn()
	if err != nil {
		return
	}
	enlarged := out.file == p.master
	var left int
	var pace pacer
	draining := false
	for {
		var buf *wire.Buf
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			buf = wire.Buffer(wire.MaxPayload)
			n, rerr = read(int(fd), buf.Payload())
			if errors.Is(rerr, unix.EAGAIN) && !draining {
				buf.Release()
				buf = nil
				return false
			}
			if n >= bulk && !enlarged {
				enlarged = true
				_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize)
			}
			return true
		})
		if errors.Is(err, os.ErrDeadlineExceeded) && !draining {
			// Whatever is in the terminal now still belongs to the output.
			draining, left = true, drainLimit
			out.file.SetReadDeadline(noDeadline)
			continue
		}
		if buf == nil {
			return
		}
		if n > 0 {
			p.agent.moved(n)
			p.emit(out.kind, buf.Payload()[:n])
		}
		buf.Release()
		if err != nil || rerr != nil || n <= 0 {
			return // a terminal that nobody has open any more ends with EIO
		}
		if left -= n; draining && left <= 0 {
			return
		}
		if out.file != p.master && pace.shouldStandBack(n) {
			if !enlarged {
				enlarged = true
				_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
			}
			time.Sleep(standBack)
			pace.last = time.Now()
		}
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
