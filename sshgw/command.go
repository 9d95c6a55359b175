package sshgw

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// CommandIO is what a command of the command tree sees of its client.
type CommandIO struct {
	Principal keys.Principal
	// User is the ssh user name as the client gave it, in printable form.
	User string
	// Fallback says that User names no sandbox of the principal and may have
	// been meant to: it is neither the principal's own id nor "sandgate". What
	// was typed may then be a shell command for a sandbox that is gone, so
	// nothing that destroys may be taken from its words by accident.
	Fallback bool
	// Reached is the address of the gateway that the client has connected to.
	Reached string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer // the same as Stdout on a terminal
	Env     []string  // "KEY=value", what the client was allowed to set
	TTY     *Terminal // nil without a terminal
}

// Terminal is the client's terminal. There is no kernel terminal behind it:
// unless SetRaw is called, line ends are translated both ways, Ctrl-C cancels
// the command's context and Ctrl-D ends its input; nothing is echoed.
type Terminal struct {
	Term string
	Size guest.Size // when the command started; zero dimensions are unknown
	// Resized yields the latest size after each change.
	Resized <-chan guest.Size

	raw atomic.Bool
}

// SetRaw leaves input and output as they are from now on, for programs that
// draw the screen themselves.
func (t *Terminal) SetRaw() { t.raw.Store(true) }

// command runs a command of the command tree as a process of a session.
type command struct {
	tty     *Terminal
	resized chan guest.Size
	in      *typeahead
	cancel  context.CancelFunc
	stopped context.CancelCauseFunc // the same, with a reason
	stdout  *commandOutput
	done    chan struct{} // closed when it has ended
	status  int           // valid once done is closed

	mu sync.Mutex // guards sends on resized
}

// startCommand starts a command of the command tree.
func (s *session) startCommand(d door, args []string) *command {
	ctx, stop := context.WithCancelCause(s.ctx)
	cancel := func() { stop(nil) }
	p := &command{in: newTypeahead(), cancel: cancel, stopped: stop, done: make(chan struct{})}
	p.stdout = &commandOutput{w: s.stdout, cancel: cancel}
	cio := CommandIO{
		Principal: d.who, User: oneLine(d.user), Fallback: d.fallback(), Reached: s.sc.LocalAddr().String(),
		Stdin: p.in, Stdout: p.stdout, Stderr: s.stderr, Env: s.env.vars,
	}
	if tty := s.terminal(); tty != nil {
		p.resized = make(chan guest.Size, 1)
		p.tty = &Terminal{Term: tty.Term, Size: tty.Size, Resized: p.resized}
		p.stdout.tty = p.tty
		cio.TTY, cio.Stderr = p.tty, p.stdout
	}
	s.spawn("command", func() {
		defer close(p.done)
		defer cancel()
		defer p.in.abandon()
		p.status = exitNotStarted
		defer contain(s.log, "command", func() {
			s.say("sandgate: something went wrong inside sandgate; its log has the cause")
		})
		p.status = s.c.srv.cfg.Commands(ctx, cio, args)
	})
	return p
}

func (p *command) ID() string { return "" }

// Write passes input on. On a terminal it takes what is typed even if the
// command does not read, so that Ctrl-C is always seen; what does not fit is
// lost, as it is in the kernel's terminal.
func (p *command) Write(b []byte) (int, error) {
	if p.tty == nil || p.tty.raw.Load() {
		return p.in.write(b, true)
	}
	text := make([]byte, 0, len(b))
	for _, c := range b {
		switch c {
		case 'C' - '@':
			p.interrupt()
			return 0, io.ErrClosedPipe
		case 'D' - '@':
			_, err := p.in.write(text, false)
			_ = p.in.Close()
			return len(b), err
		case '\r':
			c = '\n'
		}
		text = append(text, c)
	}
	if _, err := p.in.write(text, false); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *command) CloseWrite() error { return p.in.Close() }

// Resize passes the size on; an older one that was not taken is forgotten.
func (p *command) Resize(_ context.Context, size guest.Size) error {
	if p.resized == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resized:
	default:
	}
	p.resized <- size
	return nil
}

// Signal ends the command for every signal that would.
func (p *command) Signal(context.Context, string) error {
	p.interrupt()
	return nil
}

func (p *command) CloseOutput(context.Context) error {
	p.stdout.closed.Store(true)
	p.cancel()
	return nil
}

func (p *command) Hangup(context.Context) error {
	p.interrupt()
	return nil
}

// Wait waits for the command, which ends when its context does.
func (p *command) Wait(ctx context.Context) (guest.Exit, error) {
	select {
	case <-p.done:
		return guest.Exit{Code: p.status}, nil
	case <-ctx.Done():
		return guest.Exit{}, ctx.Err()
	}
}

// Close cancels a command that still runs.
func (p *command) Close() error {
	p.interrupt()
	return nil
}

// stop tells the command that the gateway is stopping.
func (p *command) stop() {
	p.stopped(ErrStopping)
	_ = p.in.Close()
}

// draws reports whether the command draws the screen itself.
func (p *command) draws() bool { return p.tty != nil && p.tty.raw.Load() }

// interrupt ends the command's context and, because reading it does not look
// at that, its input.
func (p *command) interrupt() {
	p.cancel()
	_ = p.in.Close()
}

// commandOutput is the standard output of a command. On a terminal it turns LF
// into CR LF, as the kernel's terminal would.
type commandOutput struct {
	w      io.Writer
	tty    *Terminal
	cancel context.CancelFunc
	closed atomic.Bool
}

func (o *commandOutput) Write(b []byte) (int, error) {
	if o.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	out := b
	if o.tty != nil && !o.tty.raw.Load() {
		out = make([]byte, 0, len(b)+16)
		for _, c := range b {
			if c == '\n' {
				out = append(out, '\r')
			}
			out = append(out, c)
		}
	}
	if _, err := o.w.Write(out); err != nil {
		o.cancel() // nobody reads it
		return 0, err
	}
	return len(b), nil
}
