package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Start runs a process that is not recorded as an execution.
func (a *Actor) Start(ctx context.Context, ref string, cmd guest.Command, out guest.Output) (Process, error) {
	s, err := a.ready(ctx, ref, startOperation(cmd))
	if err != nil {
		return nil, err
	}
	if cmd.ID == "" {
		cmd.ID = a.e.cfg.NewID(prefixProcess)
	}
	cmd.Env = s.environment(cmd.Env)
	touch := a.e.toucher(s.ID)
	touch()
	p, err := a.e.start(ctx, s.ID, cmd, counted(out, touch))
	if err != nil {
		return nil, a.e.explain(ctx, s.ID, err)
	}
	p.touch = touch
	return p, nil
}

// Dial connects to a socket inside the sandbox.
func (a *Actor) Dial(ctx context.Context, ref, network, address string) (guest.Stream, error) {
	s, err := a.ready(ctx, ref, "Dial")
	if err != nil {
		return nil, err
	}
	conn, err := a.e.conns.get(ctx, s.ID)
	if err != nil {
		return nil, a.e.explain(ctx, s.ID, err)
	}
	st, err := conn.Dial(ctx, network, address)
	if err != nil {
		return nil, a.e.explain(ctx, s.ID, err)
	}
	touch := a.e.toucher(s.ID)
	touch()
	return &activeStream{Stream: st, touch: touch}, nil
}

// explain turns a lost connection into what happened to the sandbox.
func (e *Engine) explain(ctx context.Context, id string, err error) error {
	if err == nil || !errors.Is(err, guest.ErrLost) && !fault.Is(err, fault.State) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unavailable) {
		return err
	}
	s, serr := e.cfg.Store.Sandbox(ctx, id)
	if serr != nil {
		return err
	}
	if st, ierr := e.cfg.Driver.Inspect(ctx, id); ierr == nil && st.State != driver.Running {
		s = e.settled(ctx, s) // it died a moment ago: let the record say how
	}
	if !s.Status.Up() {
		return s.notUp()
	}
	if errors.Is(err, guest.ErrLost) {
		return fault.Wrap(err, fault.Unavailable, "the connection to sandbox %s was lost; try again", id).About("sandbox")
	}
	return err
}

// settled waits a moment for the record of a sandbox that has died to say so.
func (e *Engine) settled(ctx context.Context, s Sandbox) Sandbox {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for s.Status.Up() {
		changed := e.pulse.next()
		now, err := e.cfg.Store.Sandbox(ctx, s.ID)
		if err != nil {
			return s
		}
		if s = now; !s.Status.Up() {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s
		}
	}
	return s
}

// start starts a process and returns it with reattachment.
func (e *Engine) start(ctx context.Context, id string, cmd guest.Command, out guest.Output) (*process, error) {
	conn, err := e.conns.get(ctx, id)
	if err != nil {
		return nil, err
	}
	p, err := conn.Start(ctx, cmd, out)
	if err != nil {
		return nil, err
	}
	return newProcess(e, id, cmd.TTY != nil, out, p), nil
}

// maxReattach bounds how often within reattachPeriod a connection may be lost
// before a process is given up: a guest that misbehaves must not keep a server
// busy.
const (
	maxReattach    = 10
	reattachPeriod = time.Minute
)

// attach finds a process that an earlier server, or an earlier connection, has
// started. from is as in guest.Conn.Attach.
func (e *Engine) attach(ctx context.Context, id, processID string, from int64, out guest.Output) (*process, error) {
	conn, err := e.conns.get(ctx, id)
	if err != nil {
		return nil, err
	}
	p, err := conn.Attach(ctx, processID, from, out)
	if err != nil {
		return nil, err
	}
	return newProcess(e, id, false, out, p), nil
}

// process is a guest process that outlives its connection: when the connection
// is lost while the sandbox lives, Wait opens a new one and attaches again
// where the output broke off.
// A pause of the sandbox ends it; the process lives on inside where memory is
// kept, and attach finds it again after the resume.
type process struct {
	e         *Engine
	sandboxID string
	tty       bool
	out       guest.Output
	touch     func() // nil but for a session, whose bytes are what keeps its sandbox from being idle

	mu       sync.Mutex
	cur      *guest.Process
	replaced chan struct{} // closed when cur is replaced or there will be no other
	final    bool          // there will be no other
	eof      bool          // stdin was closed
	endOnce  sync.Once
}

func newProcess(e *Engine, id string, tty bool, out guest.Output, p *guest.Process) *process {
	return &process{e: e, sandboxID: id, tty: tty, out: out, cur: p, replaced: make(chan struct{})}
}

func (p *process) current() (*guest.Process, <-chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur, p.replaced, p.final
}

func (p *process) end() {
	p.endOnce.Do(func() {
		p.mu.Lock()
		p.final = true
		close(p.replaced)
		p.mu.Unlock()
	})
}

// ID returns the id of the process.
func (p *process) ID() string { cur, _, _ := p.current(); return cur.ID() }

// retry runs op on the present connection, and again on the next one when the
// connection was lost under it. Somebody must be in Wait.
func (p *process) retry(ctx context.Context, op func(*guest.Process) error) error {
	for {
		cur, replaced, final := p.current()
		err := op(cur)
		if !errors.Is(err, guest.ErrLost) || final {
			return err
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return fault.From(ctx.Err())
		}
	}
}

func (p *process) Write(b []byte) (int, error) {
	if p.touch != nil {
		p.touch()
	}
	written := 0
	err := p.retry(context.Background(), func(g *guest.Process) error {
		n, err := g.Write(b[written:])
		written += n
		return err
	})
	return written, err
}

func (p *process) CloseWrite() error {
	p.mu.Lock()
	p.eof = true
	p.mu.Unlock()
	return p.retry(context.Background(), func(g *guest.Process) error { return g.CloseWrite() })
}

func (p *process) Resize(ctx context.Context, size guest.Size) error {
	return p.retry(ctx, func(g *guest.Process) error { return g.Resize(ctx, size) })
}

func (p *process) Signal(ctx context.Context, name string) error {
	return p.retry(ctx, func(g *guest.Process) error { return g.Signal(ctx, name) })
}

func (p *process) CloseOutput(ctx context.Context) error {
	return p.retry(ctx, func(g *guest.Process) error { return g.CloseOutput(ctx) })
}

func (p *process) Hangup(ctx context.Context) error {
	cur, _, _ := p.current()
	return cur.Hangup(ctx)
}

// Close detaches; the process goes on.
func (p *process) Close() error {
	cur, _, _ := p.current()
	err := cur.Close()
	p.end()
	return err
}

// Wait waits for the end of the process, over any number of connections.
func (p *process) Wait(ctx context.Context) (guest.Exit, error) {
	lost, since := 0, p.e.cfg.Now()
	for {
		cur, _, final := p.current()
		exit, err := cur.Wait(ctx)
		if err == nil {
			p.end()
			return exit, nil
		}
		if !errors.Is(err, guest.ErrLost) || final {
			if ctx.Err() == nil {
				p.end()
			}
			return exit, err
		}
		conn, err := p.e.conns.get(ctx, p.sandboxID)
		var next *guest.Process
		if err == nil {
			if next, err = conn.Attach(ctx, cur.ID(), cur.Offset(), p.out); fault.Is(err, fault.NotFound) {
				err = p.e.restores.explain(p.sandboxID, err)
			}
		}
		if now := p.e.cfg.Now(); now.Sub(since) > reattachPeriod {
			lost, since = 0, now
		}
		if lost++; errors.Is(err, guest.ErrLost) && lost < maxReattach {
			continue // lost again: the pool dials anew, or says why it cannot
		}
		if err == nil && lost >= maxReattach {
			next.Close()
			err = guest.ErrLost
		}
		if err != nil {
			p.end()
			return exit, p.e.explain(ctx, p.sandboxID, err)
		}
		p.replace(next)
	}
}

func (p *process) replace(next *guest.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final { // closed meanwhile
		next.Close()
		return
	}
	p.cur = next
	close(p.replaced)
	p.replaced = make(chan struct{})
	if p.eof && !p.tty {
		_ = next.CloseWrite() // the first one may have been lost on the way
	}
}
