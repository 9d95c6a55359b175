package sshgw

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// maxSignals bounds the signals that wait to be delivered.
const maxSignals = 16

// session is one session channel.
//
// Its request loop never waits for anything but the next request: while it
// does not read, no other channel of the connection gets anything. So what may
// take time happens on other goroutines, and what is decided by requests before
// the start is decided when the start comes.
type session struct {
	c   *conn
	sc  *gossh.ServerConn
	ch  gossh.Channel
	log *slog.Logger
	ctx context.Context // ends with the channel; its cause says why
	end context.CancelCauseFunc
	wg  sync.WaitGroup

	stdout, stderr *output
	received       atomic.Int64 // bytes of standard input

	// Of the request loop; fixed once started.
	env     environment
	wants   wants
	tty     *guest.TTY
	agent   bool // the client offers its ssh agent
	started bool

	mu       sync.Mutex
	proc     sandbox.Process // nil before the start and after the end
	view     *view           // proc, where that is a session that outlives this one
	ended    bool
	resized  *guest.Size // not delivered yet; only the last counts
	signals  []string    // not delivered yet
	closeOut bool        // not delivered yet
	steering bool        // a goroutine delivers
}

// serveSession serves a channel of type "session".
func (c *conn) serveSession(sc *gossh.ServerConn, nc gossh.NewChannel) {
	release, refusal := c.acquire(sessionChannel)
	if refusal != "" {
		_ = nc.Reject(gossh.ResourceShortage, refusal)
		return
	}
	defer release()
	ch, requests, err := nc.Accept()
	if err != nil {
		return // the connection has ended
	}
	ctx, end := context.WithCancelCause(c.ctx)
	s := &session{
		c: c, sc: sc, ch: ch, log: c.log, ctx: ctx, end: end,
		stdout: &output{w: ch}, stderr: &output{w: ch.Stderr()},
		env: environment{accept: c.srv.cfg.AcceptEnv},
	}
	defer s.wg.Wait()
	defer end(errGone)
	for r := range requests {
		ok, run := s.request(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if run != nil {
			s.spawn("session", run)
		}
	}
}

// spawn runs f on a goroutine of the session. A panic in it ends the channel.
func (s *session) spawn(what string, f func()) {
	s.wg.Go(func() {
		defer contain(s.log, what, func() { _ = s.ch.Close() })
		f()
	})
}

// request handles one request. run is what to start after the reply.
func (s *session) request(r *gossh.Request) (ok bool, run func()) {
	switch r.Type {
	case "pty-req":
		tty, err := parsePTY(r.Payload)
		if err != nil || s.started || s.tty != nil || s.limits().NoPTY {
			return false, nil
		}
		s.tty = tty
		return true, nil
	case "env":
		name, value, err := parseEnv(r.Payload)
		return err == nil && !s.started && (s.wants.set(name, value) || s.env.set(name, value)), nil
	case "window-change":
		size, err := parseWindow(r.Payload)
		return err == nil && s.resize(size), nil
	case "signal":
		name, err := parseString(r.Payload)
		return err == nil && signalNames[name] && s.signal(name), nil
	case "eow@openssh.com":
		return s.outputClosed(), nil
	case "auth-agent-req@openssh.com":
		return !s.limits().NoAgent && s.askAgent(), nil
	case "shell", "exec", "subsystem":
		return s.start(r)
	}
	// x11-req and break among others.
	return false, nil
}

// start decides what the session runs.
func (s *session) start(r *gossh.Request) (bool, func()) {
	if s.started {
		return false, nil
	}
	var arg string
	if r.Type != "shell" {
		var err error
		if arg, err = parseString(r.Payload); err != nil {
			return false, nil
		}
	}
	var run func()
	switch forced := s.limits().Command; {
	case forced != "":
		s.forced(arg)
		run = func() { s.run("exec", forced) }
	case r.Type == "subsystem":
		if run = s.subsystem(arg); run == nil {
			return false, nil
		}
	default:
		kind := r.Type
		run = func() { s.run(kind, arg) }
	}
	s.started = true
	return true, run
}

// resize notes the size of the terminal. Zero dimensions mean unchanged.
func (s *session) resize(size guest.Size) bool {
	if s.tty == nil || size.Rows == 0 || size.Cols == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resized = &size
	s.steer()
	return true
}

// signal notes a signal for the process, which may still be starting.
func (s *session) signal(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.ended || len(s.signals) >= maxSignals {
		return false
	}
	s.signals = append(s.signals, name)
	s.steer()
	return true
}

// outputClosed notes that the client reads no more output.
func (s *session) outputClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeOut = true
	s.steer()
	return true
}

// steer has what was noted delivered to the process, if there is one, by a
// goroutine that lives only as long as there is something to deliver. The
// caller holds s.mu.
func (s *session) steer() {
	if s.proc == nil || s.steering || s.resized == nil && len(s.signals) == 0 && !s.closeOut {
		return
	}
	s.steering = true
	s.spawn("steering", func() {
		for s.deliver() {
		}
	})
}

// deliver delivers what was noted; false when there was nothing.
func (s *session) deliver() bool {
	s.mu.Lock()
	proc, size, signals, closeOut := s.proc, s.resized, s.signals, s.closeOut
	s.resized, s.signals, s.closeOut = nil, nil, false
	if proc == nil || size == nil && len(signals) == 0 && !closeOut {
		s.steering = false
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	if size != nil {
		_ = proc.Resize(s.ctx, *size)
	}
	for _, name := range signals {
		_ = proc.Signal(s.ctx, name)
	}
	if closeOut {
		_ = proc.CloseOutput(s.ctx)
	}
	return true
}

// drain is told that the gateway stops. A session that outlives its clients is
// left at once: its user loses nothing, and the next gateway has it. Others are
// told, and may end in their own time.
func (s *session) drain(line string) {
	s.mu.Lock()
	leave := s.view != nil
	s.mu.Unlock()
	if leave {
		s.end(errStopping)
		return
	}
	if !s.stopCommand(false) {
		s.notify(line)
	}
}

// stopCommand tells a command of the command tree that the gateway is stopping,
// and reports whether it was told. One that draws the screen is told at once,
// to have the time to leave the terminal as it was; another one may use the
// time that is left to come to its end.
func (s *session) stopCommand(late bool) bool {
	s.mu.Lock()
	p, ok := s.proc.(*command)
	s.mu.Unlock()
	if !ok || !late && !p.draws() {
		return false
	}
	p.stop()
	return true
}

// setView notes that the session shows one that outlives it, or no more.
func (s *session) setView(v *view) {
	s.mu.Lock()
	s.view = v
	s.mu.Unlock()
	s.c.mu.Lock()
	stopping := s.c.stopping
	s.c.mu.Unlock()
	if v != nil && stopping { // it was told before it could know
		s.end(errStopping)
	}
}

// notify tells the client something on standard error without waiting for it.
func (s *session) notify(line string) {
	s.spawn("notice", func() { s.say(line) })
}

// say writes one line to the client's standard error.
func (s *session) say(line string) {
	end := "\n"
	if s.tty != nil {
		end = "\r\n" // the client's terminal is in raw mode
	}
	_, _ = io.WriteString(s.stderr, line+end)
}

// output is one output stream of a session: it counts, and lets one goroutine
// write at a time and none after its end, which the library demands.
type output struct {
	mu    sync.Mutex
	w     io.Writer
	ended bool
	n     atomic.Int64
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := o.w.Write(p)
	o.n.Add(int64(n))
	return n, err
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
}
