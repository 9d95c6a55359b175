package guest

import (
	"context"
	"io"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// run gives the output to the writers until the process has ended, the
// connection has, or the process was detached.
func (p *Process) run(out Output) {
	defer close(p.done)
	exit, err := p.deliver(out)
	if err == nil {
		p.exit = exit
		// Who still writes input is let go, soon even when the guest does not
		// drop the input as it should.
		p.op.SetWriteDeadline(time.Now().Add(collectPatience))
		return
	}
	select {
	case <-p.detached:
		err = errDetached
	default:
		err = p.op.failed(context.Background(), err)
	}
	p.err = err
	p.op.SetWriteDeadline(longAgo) // nobody takes input any more
}

func (p *Process) deliver(out Output) (Exit, error) {
	frames := wire.NewFrameReader(p.op)
	stdout, stderr := sink{out.Stdout}, sink{out.Stderr}
	if n := p.Skipped(); n > 0 && out.Skipped != nil {
		out.Skipped(n)
	}
	for {
		kind, _, err := frames.Next()
		if err != nil {
			return Exit{}, err
		}
		switch kind {
		case wire.KindStdout:
			err = p.copy(&stdout, frames)
		case wire.KindStderr:
			err = p.copy(&stderr, frames)
		case wire.KindGap:
			err = p.skip(frames, out.Skipped)
		case wire.KindExit:
			var e wire.Exit
			if err := frames.JSON(&e); err != nil {
				return Exit{}, err
			}
			if e.Offset != p.Offset() {
				return Exit{}, wire.Violation("exit at offset %d, but the output ends at %d", e.Offset, p.Offset())
			}
			return checkExit(e)
		default:
			err = wire.Violation("frame of kind %d in the output of a process", kind)
		}
		if err != nil {
			return Exit{}, err
		}
	}
}

// copy gives the payload of a frame to a writer, piece by piece as it comes.
func (p *Process) copy(w *sink, frame *wire.FrameReader) error {
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if n > 0 {
			w.write(buf.Payload()[:n])
			p.offset.Add(int64(n))
		}
		if err != nil {
			return err
		}
		select {
		case <-p.detached:
			return errDetached
		default:
		}
	}
	return nil
}

func (p *Process) skip(frame *wire.FrameReader, tell func(int64)) error {
	to, err := frame.Offset()
	if err != nil {
		return err
	}
	gap := to - p.Offset()
	if gap < 0 {
		return wire.Violation("output goes back from offset %d to %d", p.Offset(), to)
	}
	p.skipped.Add(gap)
	p.offset.Store(to)
	if tell != nil && gap > 0 {
		tell(gap)
	}
	return nil
}

// sink is a writer until it fails.
type sink struct{ w io.Writer }

func (s *sink) write(b []byte) {
	if s.w == nil {
		return
	}
	if n, err := s.w.Write(b); err != nil || n < len(b) {
		s.w = nil
	}
}
