package sandbox

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/screen"
)

// drawer is the way of a session's output to one client. What the guest still
// holds of the output when the client comes is not sent but drawn: it is shown
// to a screen in memory, and what is on that screen is sent in one piece. Every
// byte after that is sent as it is. The same happens again after a gap, when
// the client was too slow: what it gets makes sense without what it has missed.
type drawer struct {
	out   io.Writer
	touch func()
	ls    *liveSession
	v     *viewer
	sent  atomic.Int64
	ready chan struct{} // closed when it is known where the output starts
	open  sync.Once     // closes ready
	// stopped: nothing is sent any more.
	stopped atomic.Bool

	// turn is held while something is done with the fields below, which
	// includes writing to the client.
	turn   chan struct{}
	offset int64
	until  int64          // what comes before this offset is drawn
	scr    *screen.Screen // while that is so
	lossy  bool           // the output before what the guest holds is lost
	modes  screen.Modes   // what is switched on at the client's terminal
}

// straight is the way of a client for which a session is started: it gets all
// of the output.
func straight(out io.Writer, v *viewer) *drawer {
	d := redrawn(out, v)
	d.modes = screen.Modes{}
	d.open.Do(func() { close(d.ready) })
	return d
}

// leftOn is what may be on at the terminal of a client that comes: the one
// before it in the same terminal was killed, perhaps, and has left the modes of
// this very session.
const leftOn = "\x1b[>1u\x1b[>4;1m\x1b[1;2r\x1b[?1;1000;1002;1003;1004;1006;2004h\x1b=\x1b[?1049h"

// redrawn is the way of a client that comes to a session.
func redrawn(out io.Writer, v *viewer) *drawer {
	d := &drawer{out: out, touch: v.ls.touch, ls: v.ls, v: v, ready: make(chan struct{}), turn: make(chan struct{}, 1)}
	d.modes.Write([]byte(leftOn))
	return d
}

func (d *drawer) output(hold guest.Hold) guest.Output {
	return guest.Output{Stdout: d, Skipped: d.skipped, Hold: hold}
}

// begin says where the output that comes starts, and so how much of it is to
// be drawn.
func (d *drawer) begin(ctx context.Context, p *guest.Process) {
	start := p.Offset() // nothing has been taken yet: Write waits
	head, _ := d.ls.look(ctx, ahead)
	d.turn <- struct{}{}
	d.replay(start, max(head, start), p.Modes(), p.Size())
	d.lossy = start > 0
	<-d.turn
	d.open.Do(func() { close(d.ready) })
	if head <= start {
		d.ls.e.background(func(context.Context) { _, _ = d.Write(nil) }) // there is nothing to wait for
	}
}

// look attaches to the output for a moment and returns the offset where that
// starts, and the modes of the terminal there.
func (ls *liveSession) look(ctx context.Context, from int64) (offset int64, modes string) {
	ctx, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	conn, err := ls.e.conns.get(ctx, ls.sandboxID)
	if err != nil {
		return -1, ""
	}
	p, err := conn.Attach(ctx, ls.id, from, guest.Output{Stdout: stuck(ctx.Done()), Hold: guest.HoldNever})
	if err != nil {
		return -1, ""
	}
	defer p.Close()
	return p.Offset(), p.Modes()
}

// stuck takes no output before it is closed.
type stuck <-chan struct{}

func (s stuck) Write([]byte) (int, error) {
	<-s
	return 0, io.ErrClosedPipe
}

// replay has the output from offset on drawn, up to until. The caller has the
// turn.
func (d *drawer) replay(offset, until int64, modes string, size guest.Size) {
	if size.Rows == 0 || size.Cols == 0 {
		size = d.ls.sizeOf(d.v)
	}
	d.offset, d.until = offset, until
	d.scr = screen.New(int(size.Rows), int(size.Cols))
	_, _ = d.scr.Write([]byte(modes)) // a screen in memory takes everything
}

// Write takes output from the guest.
func (d *drawer) Write(b []byte) (int, error) {
	<-d.ready
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.stopped.Load() {
		return 0, io.ErrClosedPipe
	}
	n := len(b)
	if d.scr != nil {
		drawn := int(min(int64(n), max(d.until-d.offset, 0)))
		_, _ = d.scr.Write(b[:drawn])
		d.offset += int64(drawn)
		b = b[drawn:]
		if d.offset < d.until {
			d.touch()
			return n, nil
		}
		if err := d.show(); err != nil {
			return 0, err
		}
	}
	d.offset += int64(len(b))
	return n, d.send(b)
}

// send sends bytes to the client. The caller has the turn.
func (d *drawer) send(b []byte) error {
	if len(b) == 0 || d.out == nil {
		return nil
	}
	d.modes.Write(b)
	n, err := d.out.Write(b)
	d.sent.Add(int64(n))
	if n > 0 { // what a client that is gone did not take is no sign of life
		d.touch()
	}
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		d.stopped.Store(true)
	}
	return err
}

// show sends what is on the screen. The caller has the turn.
func (d *drawer) show() error {
	scr := d.scr
	d.scr = nil
	if d.lossy && (scr.Alternate() || scr.Exhausted()) && d.v.mode == ViewControl {
		// Only the program knows all of its screen.
		d.ls.e.background(d.ls.nudge)
	}
	size := d.ls.sizeOf(d.v)
	return d.send(append(d.modes.Off(), scr.Redraw(int(size.Rows), int(size.Cols))...))
}

// nudge has a program on the whole screen draw itself anew, by a change of the
// size that is taken back.
func (ls *liveSession) nudge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	ls.mu.Lock()
	v, size, fitting := ls.latest.Load(), ls.size, ls.fitting
	if v == nil || fitting || ls.over || ls.asleep || size.Rows < 2 {
		ls.mu.Unlock()
		return
	}
	ls.fitting = true
	ls.mu.Unlock()
	_ = v.proc.Load().Resize(ctx, guest.Size{Rows: size.Rows - 1, Cols: size.Cols})
	ls.mu.Lock()
	ls.fitting = false
	size = ls.size
	ls.mu.Unlock()
	_ = ls.fit(ctx, v, size) // to what it is to be by now
}

// skipped is told that n bytes of output were lost, before those that come
// next.
func (d *drawer) skipped(n int64) {
	<-d.ready
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.stopped.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(d.ls.e.ctx, takeUpTime)
	defer cancel()
	start := d.offset + n
	at, modes := d.ls.look(ctx, start)
	if at != start {
		modes = ""
	}
	head, _ := d.ls.look(ctx, ahead)
	d.replay(start, max(head, start), modes, d.ls.known(guest.Size{}))
	d.lossy = true
}

// drawPatience bounds the wait for a client that takes nothing.
const drawPatience = time.Second

// take waits for the turn, not for long.
func (d *drawer) take() bool {
	timer := time.NewTimer(drawPatience)
	defer timer.Stop()
	select {
	case d.turn <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// discard stops sending.
func (d *drawer) discard() {
	d.stopped.Store(true)
	d.open.Do(func() { close(d.ready) })
}

// restore leaves the client's terminal in good order: what the session has
// switched on there is switched off. Nothing is sent after that.
func (d *drawer) restore() {
	select {
	case <-d.ready:
	default:
		return
	}
	if !d.take() {
		return
	}
	defer func() { <-d.turn }()
	if !d.stopped.Load() {
		_ = d.send(d.modes.Off())
		d.stopped.Store(true)
	}
}
