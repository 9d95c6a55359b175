package guest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Process is the host's end of one process inside a sandbox. Its methods are
// safe for concurrent use.
type Process struct {
	conn    *Conn
	op      *operation
	id      string
	started wire.Started
	input   *wire.FrameWriter

	offset  atomic.Int64
	skipped atomic.Int64

	collect   sync.Once
	collected chan struct{} // closed when the guest has been told
	detach    sync.Once
	detached  chan struct{}

	done chan struct{} // closed when exit or err is set
	exit Exit
	err  error
}

// collectPatience bounds how long an exit that is known is held back because
// the guest does not take notice of it.
const collectPatience = time.Second

var errDetached = fault.New(fault.Cancelled, "detached from the process")

// Start starts a process. ctx bounds the start, not the process; when it ends
// first, a process that was started all the same is hung up.
//
// A command that does not exist, or cannot be run, is a process that ends with
// 127 or 126 and a line on standard error, as in a shell; its PID is 0.
//
// Codes: Invalid for a malformed command, an unknown user and a working
// directory that does not exist; Exists when the id is taken; Exhausted when
// the sandbox has no room for another process; Unsupported when the sandbox
// lacks what is asked for (terminals, changing the user, a builtin).
func (c *Conn) Start(ctx context.Context, cmd Command, out Output) (*Process, error) {
	if cmd.Builtin != "" && c.hello.Protocol < wire.BuiltinVersion {
		return nil, errOlderGuest
	}
	type started struct {
		p   *Process
		err error
	}
	ch := make(chan started, 1)
	c.spawn(func() {
		p, err := c.attach(context.Background(), wire.OpStart, cmd, cmd.ID, 0)
		ch <- started{p, err}
	})
	select {
	case r := <-ch:
		if r.err == nil {
			go r.p.run(out)
		}
		return r.p, r.err
	case <-ctx.Done():
		// Nobody will know the process, so it must not go on.
		c.spawn(func() {
			if r := <-ch; r.err == nil {
				go r.p.run(Output{})
				_ = r.p.Hangup(context.Background())
				_, _ = r.p.Wait(context.Background())
			}
		})
		return nil, fault.From(ctx.Err())
	}
}

// Attach connects to a running (or finished and not yet collected) process.
// from is the absolute output offset to continue at: Process.Offset of an
// earlier Process value continues without loss or repetition where the guest
// still holds the bytes; -1 replays all the guest still holds. What it holds
// no more is skipped, see Process.Skipped. An offset that lies ahead, as after
// the return to an older checkpoint, continues with the next output.
//
// Codes: NotFound.
func (c *Conn) Attach(ctx context.Context, id string, from int64, out Output) (*Process, error) {
	p, err := c.attach(ctx, wire.OpAttach, wire.Attach{ID: id, From: from, Hold: string(out.Hold)}, id, from)
	if err == nil {
		go p.run(out)
	}
	return p, err
}

// attach opens a process's stream; the caller runs it.
func (c *Conn) attach(ctx context.Context, op wire.Op, args any, id string, from int64) (*Process, error) {
	o, err := c.open(ctx, op, args)
	if err != nil {
		return nil, err
	}
	p := &Process{
		conn: c, op: o, id: id,
		input:     wire.NewFrameWriter(o),
		collected: make(chan struct{}),
		detached:  make(chan struct{}),
		done:      make(chan struct{}),
	}
	if err := o.answer(ctx, &p.started); err != nil {
		o.leave()
		return nil, err
	}
	if err := checkStarted(&p.started); err != nil {
		return nil, c.violated(err)
	}
	p.offset.Store(p.started.Offset)
	if from >= 0 && p.started.Offset > from {
		p.skipped.Store(p.started.Offset - from)
	}
	return p, nil
}

// ID returns the id of the process.
func (p *Process) ID() string { return p.id }

// PID returns the process id inside the sandbox; 0 when nothing was started
// because the command does not exist.
func (p *Process) PID() int { return p.started.PID }

// TTY reports whether the process has a terminal.
func (p *Process) TTY() bool { return p.started.TTY }

// Modes returns what has to be written to a new terminal before the first byte
// of output: control sequences that set the modes, title and character sets as
// the output before it has, and then the beginning of the sequence that it is
// in the middle of, if it is. Content, colours and positions are not in it. It
// is empty when there is nothing to set.
func (p *Process) Modes() string { return p.started.Modes }

// Size returns the size that the terminal had when the process was started or
// attached to; zero when it is not known.
func (p *Process) Size() Size { return Size{Rows: p.started.Rows, Cols: p.started.Cols} }

// Write writes to standard input. It blocks while the process does not read.
// Input that was under way when the connection is lost may be lost with it.
func (p *Process) Write(b []byte) (int, error) {
	select {
	case <-p.done:
		return 0, p.inputError(nil)
	case <-p.detached:
		return 0, io.ErrClosedPipe
	default:
	}
	n, err := p.input.Data(wire.KindData, b)
	if err != nil {
		err = p.inputError(err)
	}
	return n, err
}

// CloseWrite ends standard input; for a terminal it sends its end-of-file
// character once.
func (p *Process) CloseWrite() error {
	if err := p.input.Fact(wire.KindEOF, nil); err != nil {
		return p.inputError(err)
	}
	return nil
}

// inputError says why input cannot be sent: io.ErrClosedPipe when the process
// has ended, ErrLost when only its connection has.
func (p *Process) inputError(err error) error {
	select {
	case <-p.done:
		if errors.Is(p.err, ErrLost) {
			return p.err
		}
		return io.ErrClosedPipe
	case <-p.detached:
		return io.ErrClosedPipe
	default:
		return p.op.failed(context.Background(), err)
	}
}

// Resize sets the terminal's size. It never waits behind standard input.
func (p *Process) Resize(ctx context.Context, size Size) error {
	return p.conn.call(ctx, wire.OpResize, wire.Resize{ID: p.id, Rows: size.Rows, Cols: size.Cols}, nil)
}

// Signal sends a signal as Conn.Signal does.
func (p *Process) Signal(ctx context.Context, name string) error {
	return p.conn.Signal(ctx, p.id, name)
}

// SignalSession sends a signal as Conn.SignalSession does.
func (p *Process) SignalSession(ctx context.Context, name string) error {
	return p.conn.SignalSession(ctx, p.id, name)
}

// CloseOutput closes the read end of standard output inside the sandbox, so
// that the process gets SIGPIPE when it writes on. The output of a terminal is
// dropped from then on.
func (p *Process) CloseOutput(ctx context.Context) error {
	return p.conn.call(ctx, wire.OpCloseOutput, wire.Target{ID: p.id}, nil)
}

// Hangup tells the guest that the user is gone: SIGHUP to the process group,
// SIGKILL after a grace period to what is left of it. What called setsid
// itself lives on. It does not wait for the end.
func (p *Process) Hangup(ctx context.Context) error {
	return p.conn.call(ctx, wire.OpHangup, wire.Target{ID: p.id}, nil)
}

// Wait waits until the process has ended and all its output has been given to
// the writers. If the connection is lost first the error is ErrLost and the
// process goes on; Attach finds it again. The guest forgets a process whose
// exit Wait has returned, and its id is free again; but one that was started
// with Command.Keep stays until Conn.Forget.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	if err := p.await(ctx); err != nil {
		return Exit{}, err
	}
	if p.err != nil {
		return Exit{}, p.err
	}
	p.collect.Do(func() {
		p.conn.spawn(func() {
			defer close(p.collected)
			_ = p.input.Fact(wire.KindCollected, nil) // or the guest keeps it for a while
			p.op.leave()
		})
	})
	select {
	case <-p.collected:
	case <-ctx.Done():
	case <-time.After(collectPatience):
	}
	return p.exit, nil
}

// await waits for the end of run, or a reason not to.
func (p *Process) await(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	select {
	case <-p.done:
		return nil
	case <-p.detached: // a writer may never return
		return errDetached
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// Offset is the absolute offset of the output given to the writers so far.
func (p *Process) Offset() int64 { return p.offset.Load() }

// Skipped is how many bytes of output before Offset the guest no longer held,
// so that the writers never got them.
func (p *Process) Skipped() int64 { return p.skipped.Load() }

// Close detaches: the process goes on, its output is kept by the guest up to a
// bound. A writer that is being called may still be when Close returns; it is
// not called again. Wait returns an error from then on, unless the process had
// ended.
func (p *Process) Close() error {
	p.detach.Do(func() {
		close(p.detached)
		p.op.SetReadDeadline(longAgo)
		p.op.SetWriteDeadline(longAgo)
		p.conn.spawn(func() {
			if !p.hasExited() {
				// Closing the stream says the same, but the guest does not
				// see it while it is stuck in the standard input.
				_ = p.conn.call(context.Background(), wire.OpDetach, wire.Detach{Attachment: p.started.Attachment}, nil)
			}
			p.op.leave()
		})
	})
	return nil
}

// hasExited reports whether the exit has arrived.
func (p *Process) hasExited() bool {
	select {
	case <-p.done:
		return p.err == nil
	default:
		return false
	}
}
