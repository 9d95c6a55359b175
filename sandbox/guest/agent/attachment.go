package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

var (
	noDeadline = time.Time{}
	longAgo    = time.Unix(1, 0)
)

// attachment is one reader of a process's output, and a writer to its input.
type attachment struct {
	stream *yamux.Stream
	from   int64  // offset the attachment starts at
	modes  string // of the terminal there

	// The position in the ring belongs to the process's lock.
	pos  int64
	skip int // bytes of the first frame that the client has already

	hold guest.Hold // set before anybody else sees the attachment
	once sync.Once
	proc *process      // set before anybody else sees the attachment
	gone chan struct{} // closed by detach
}

func newAttachment(st *yamux.Stream) *attachment {
	return &attachment{stream: st, gone: make(chan struct{})}
}

// attach adds att, which reads from the offset on; -1 is all there is.
func (p *process) attach(att *attachment, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	att.proc = p
	pos, off := p.ring.seek(offset)
	att.pos, att.from = pos, off
	if offset > off && pos < p.ring.head {
		att.skip = int(offset - off)
		att.from = offset
	}
	att.modes = p.ring.modes(att.pos, att.skip)
	p.attached = append(p.attached, att)
}

// detach ends the attachment, however stuck it is: in the ring, in its stream
// or in the standard input of the process.
func (att *attachment) detach() {
	att.once.Do(func() {
		close(att.gone)
		att.stream.SetWriteDeadline(longAgo)
		p := att.proc
		if p.input != nil {
			p.input.release(att)
		}
		p.mu.Lock()
		p.attached = slices.DeleteFunc(p.attached, func(other *attachment) bool { return other == att })
		alone := p.ended && len(p.attached) == 0
		collected := p.collected && !p.keep
		p.changed.Broadcast()
		p.mu.Unlock()
		switch {
		case alone && collected:
			p.agent.drop(p)
		case alone:
			p.agent.sweepNow()
		}
	})
}

// converse runs an attachment: it announces the process, then sends output and
// takes input until the host leaves, the connection ends, or the exit of the
// process has been taken over.
func (s *session) converse(st *yamux.Stream, p *process, att *attachment) {
	number := s.track(att.detach)
	defer s.untrack(number)
	defer att.detach()
	size := p.terminalSize()
	started := wire.Started{
		PID: p.pid, TTY: p.master != nil, Attachment: number, Offset: att.from,
		Modes: att.modes, Rows: size.Rows, Cols: size.Cols,
	}
	if !s.reply(st, started, nil) {
		return
	}
	var sender sync.WaitGroup
	sender.Go(func() { att.send() })
	if att.receive() {
		p.mu.Lock()
		p.collected = p.ended
		p.mu.Unlock()
	}
	att.detach()
	sender.Wait()
}

// send sends output as the ring gets it, and the exit at the end.
func (att *attachment) send() {
	for {
		buf, done := att.next()
		if buf == nil {
			return
		}
		_, err := att.stream.Write(buf.Bytes)
		buf.Bytes = buf.Bytes[:cap(buf.Bytes)]
		buf.Release()
		if err != nil {
			att.detach()
			return
		}
		if done {
			return
		}
	}
}

// next waits for frames to send. It returns nil when the attachment has been
// detached, and done with the last frames.
func (att *attachment) next() (buf *wire.Buf, done bool) {
	p := att.proc
	p.mu.Lock()
	defer p.mu.Unlock()
	for att.pos == p.ring.head && !p.ended && !att.isGone() {
		p.changed.Wait()
	}
	if att.isGone() {
		return nil, false
	}
	buf = wire.Buffer(int(min(p.ring.head-att.pos+64, wire.MaxPayload)))
	b := buf.Bytes[:0]
	if att.pos < p.ring.tail {
		// Only an attachment that does not hold the process back gets here.
		att.pos, att.skip = p.ring.tail, 0
		b = wire.AppendGap(b, p.ring.tailOff)
	}
	if att.skip > 0 {
		b, att.pos, _ = p.ring.rest(b, att.pos, att.skip)
		att.skip = 0
	}
	b, att.pos, _ = p.ring.frames(b, att.pos)
	p.changed.Broadcast()
	if att.pos == p.ring.head && p.ended && cap(b)-len(b) >= wire.MaxControl {
		if b, done = appendExit(b, p.exit); !done {
			b = nil
		}
	}
	buf.Bytes = b
	return buf, done
}

func (att *attachment) isGone() bool {
	select {
	case <-att.gone:
		return true
	default:
		return false
	}
}

func appendExit(b []byte, exit wire.Exit) ([]byte, bool) {
	b, err := wire.AppendJSON(b, wire.KindExit, exit)
	return b, err == nil
}

// receive takes input until the stream ends or the host has taken over the
// exit, which it reports.
func (att *attachment) receive() (collected bool) {
	frames := wire.NewFrameReader(att.stream)
	for {
		kind, _, err := frames.Next()
		if err != nil {
			return false
		}
		switch kind {
		case wire.KindData:
			att.proc.agent.moved(frames.Left())
			err = att.proc.input.feed(att, frames)
		case wire.KindEOF:
			err = att.proc.input.end(att)
		case wire.KindCollected:
			return true
		default:
			return false
		}
		if err != nil {
			return false
		}
	}
}
