package sandbox

import (
	"context"
	"errors"
	"sync"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// command is an execution or a job under way.
type command struct {
	id, sandboxID string
	spools        map[Stream]*spool
	turn          chan struct{} // closed when it holds the sandbox; jobs need not
	started       chan struct{} // closed when it is known to run
	done          chan struct{} // closed when the record has its end

	ctx  context.Context // ends with stop, and with the engine
	stop context.CancelCauseFunc

	kill     chan struct{} // closed when it is to end without grace
	killOnce sync.Once

	mu   sync.Mutex
	proc *process // nil while it is not attached
}

// Why a command is stopped before its end.
var (
	errExecTimeout = errors.New("timed out")
	errStopped     = errors.New("stopped on request")
	errGone        = errors.New("the sandbox is gone")
)

// newCommand registers a command. The caller holds mu.
func (e *Engine) newCommand(id, sandboxID string, spools map[Stream]*spool) *command {
	run := &command{
		id: id, sandboxID: sandboxID, spools: spools,
		turn: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}), kill: make(chan struct{}),
	}
	run.ctx, run.stop = context.WithCancelCause(e.ctx)
	e.active[id] = run
	return run
}

// running returns a command under way, nil when there is none of that id.
func (e *Engine) running(id string) *command {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[id]
}

// output is where the command prints to.
func (c *command) output() guest.Output {
	return guest.Output{Stdout: c.spools[Stdout], Stderr: c.spools[Stderr], Skipped: c.spools[Stdout].skipped}
}

// offset is how much of the command's output was taken, by this server and
// those before it.
func (c *command) offset() int64 {
	n := c.spools[Stdout].lost()
	for _, sp := range c.spools {
		_, total := sp.sizes()
		n += total
	}
	return n
}

// attached sets the process that the command is from now on.
func (c *command) attached(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = p
	select {
	case <-c.started:
	default:
		close(c.started)
	}
}

// detached notes that the process is out of reach for now.
func (c *command) detached() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = nil
}

// sleeps notes that the command is paused with its sandbox.
func (c *command) sleeps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = nil
	select {
	case <-c.started:
	default:
		close(c.started)
	}
}

// process returns what runs, nil when nothing is attached.
func (c *command) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

func (c *command) hasTurn() bool {
	select {
	case <-c.turn:
		return true
	default:
		return false
	}
}

// waitDone waits until the record has its end, or for ctx.
func (c *command) waitDone(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// halt lets the command go without an end: the server stops, and the next one
// finds it again.
func (c *command) halt() {
	if p := c.process(); p != nil {
		p.Close()
	}
	for _, sp := range c.spools {
		sp.close()
	}
}

// letGo ends the bookkeeping of a command, and passes the sandbox on if the
// command held it.
func (e *Engine) letGo(run *command) {
	for _, sp := range run.spools {
		sp.close()
	}
	e.mu.Lock()
	delete(e.active, run.id)
	e.passOn(run.sandboxID, run.id)
	e.mu.Unlock()
	run.stop(nil)
	close(run.done)
	e.background(func(context.Context) {
		for _, sp := range run.spools {
			sp.release()
		}
	})
}
