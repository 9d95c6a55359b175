package sshgw

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// How long the end of a process is waited for after its client has gone. The
// guest itself kills what does not obey; this only bounds our patience with
// what holds the output open (a daemon that lives on).
const (
	hangupTime  = 5 * time.Second
	hangupGrace = 8 * time.Second
)

// run runs a shell or a command to its end and closes the channel, in the
// order clients rely on: all output, exit status, EOF, CLOSE.
func (s *session) run(kind, command string) {
	if !s.open() {
		return
	}
	defer s.close()
	if s.refused() {
		return
	}
	s.tellNow()
	began := s.c.srv.cfg.Now()
	d, err := s.c.enterDoor(s.ctx, s.sc)
	where := d.ref
	if err == nil && where == "" {
		where = "control"
	}
	log := s.log.With("principal", d.who.ID, "where", where, "kind", kind, "tty", s.tty != nil)
	log.Info("ssh session started")
	s.begins(d, kind, command, err)

	var exit guest.Exit
	switch {
	case err != nil:
		exit.Code = exitNotStarted
	case !utf8.ValidString(command):
		exit.Code, err = exitNotStarted, fault.New(fault.Invalid, "the command is not valid UTF-8")
	case s.lasts(d, kind):
		exit, err = s.attach(d, command)
	default:
		exit, err = s.process(d, kind, command)
	}
	if err != nil {
		s.say(sayError(err))
		recordOf(s.ch).because(err)
	}
	_ = sendExit(s.ch, exit)
	attrs := []any{
		"exit", exit.Code, "signal", quoted(exit.Signal), "lasted", s.c.srv.cfg.Now().Sub(began),
		"received", s.received.Load(), "sent", s.stdout.n.Load() + s.stderr.n.Load(),
	}
	if err != nil {
		attrs = append(attrs, "err", quoted(err.Error()))
		if why := errors.Unwrap(err); why != nil {
			attrs = append(attrs, "why", quoted(why.Error()))
		}
	}
	log.Info("ssh session ended", attrs...)
}

// refused asks again whether the client's key is good, for a channel may have
// been opened long before it is used. If it is not, the client is told and the
// connection ends.
func (s *session) refused() bool {
	err := s.c.recheck(s.ctx, s.sc)
	if err == nil {
		return false
	}
	s.say(sayError(err))
	_ = sendStatus(s.ch, exitNotStarted)
	_ = s.ch.Close()
	_ = s.sc.Close()
	return true
}

// process starts what was asked for and takes it to its end.
func (s *session) process(d door, kind, command string) (guest.Exit, error) {
	start := s.startInside
	if d.ref == "" {
		start = s.startHere
	}
	p, stop, err := start(d, kind, command)
	if err != nil {
		return guest.Exit{Code: exitNotStarted}, err
	}
	defer stop()
	defer func() { _ = p.Close() }()
	exit, err := s.drive(p)
	switch {
	case err == nil:
		return exit, nil
	case s.ctx.Err() != nil:
		if err = cause(s.ctx); errors.Is(err, errGone) {
			hangUp(p)
		}
	case errors.Is(err, guest.ErrLost):
		err = fault.Wrap(err, fault.Unavailable, "the connection to the sandbox was lost; what was started may still run")
	}
	return guest.Exit{Code: exitUnknown}, err
}

// drive lets what the client sends reach the process, until that has ended or
// there is no waiting for it.
func (s *session) drive(p sandbox.Process) (guest.Exit, error) {
	s.mu.Lock()
	s.proc = p
	s.steer()
	s.mu.Unlock()
	s.spawn("standard input", func() { s.copyInput(p) })
	exit, err := p.Wait(s.ctx)
	s.mu.Lock()
	s.proc, s.ended = nil, true
	s.mu.Unlock()
	return exit, err
}

// startHere starts a command of the command tree.
func (s *session) startHere(d door, kind, command string) (sandbox.Process, func(), error) {
	if kind == subsystemSFTP {
		return nil, nil, fault.New(fault.Invalid, "there are no files here: connect as <sandbox>@gateway")
	}
	args, err := splitCommand(command)
	if err != nil {
		return nil, nil, err
	}
	return s.startCommand(d, args), func() {}, nil
}

// startInside starts a process in the sandbox, which ends with its client. The
// caller calls stop when it has ended.
func (s *session) startInside(d door, kind, command string) (p sandbox.Process, stop func(), err error) {
	up, told := s.wake(d)
	out := guest.Output{Stdout: s.stdout, Stderr: s.stderr}
	var sc *screen
	if told { // the line that was begun ends before anything is shown
		sc = &screen{s: s, said: true, before: func() { up(true) }}
		out.Stdout = sc
	}
	agent, stop := s.forwardAgent(d, "")
	cmd := guest.Command{
		Label: "ssh " + kind, Script: command, User: d.account, Env: slices.Concat(s.env.vars, agent), TTY: s.terminal(),
	}
	if kind == subsystemSFTP {
		cmd.Builtin, cmd.TTY = guest.BuiltinSFTP, nil
	}
	p, err = d.ops.Start(s.ctx, d.ref, cmd, out)
	switch {
	case err != nil:
		up(false)
		stop()
	case sc != nil:
		sc.draw()
	default:
		up(true)
	}
	return p, stop, err
}

// terminal returns the terminal to start with: the size is the last one that
// was told, which may have come after the request for the terminal.
func (s *session) terminal() *guest.TTY {
	if s.tty == nil {
		return nil
	}
	tty := *s.tty
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resized != nil {
		tty.Size = *s.resized
	}
	return &tty
}

// copyInput copies the client's input to the process. The end of the input is
// passed on; it holds nothing back, and a process that takes no more is not
// fed further.
func (s *session) copyInput(p sandbox.Process) {
	if _, err := copyStream(p, counted{s.ch, &s.received}); err != nil {
		if isOpenSSH(s.c.wire.ident) {
			_, _ = s.ch.SendRequest("eow@openssh.com", false, nil)
		}
		return
	}
	if s.ctx.Err() == nil {
		_ = p.CloseWrite()
	}
}

// hangUp tells the process that its user is gone, and waits a bounded time for
// it to end.
func hangUp(p sandbox.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), hangupTime)
	defer cancel()
	if p.Hangup(ctx) != nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), hangupGrace)
	defer cancel()
	_, _ = p.Wait(ctx)
}

// open registers the session with its connection; false when the gateway is
// stopping.
func (s *session) open() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.stopping {
		_ = s.ch.Close()
		return false
	}
	s.c.sessions[s] = struct{}{}
	return true
}

// close ends the channel after everything has been written.
func (s *session) close() {
	s.stdout.end()
	s.stderr.end()
	_ = s.ch.CloseWrite()
	_ = s.ch.Close()
	s.leave()
}

// leave takes the session from the list of its connection.
func (s *session) leave() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	delete(s.c.sessions, s)
	s.c.settled()
}

// runAPI serves one connection of the HTTP API on the channel.
func (s *session) runAPI() {
	if !s.open() {
		return
	}
	defer s.leave()
	if s.refused() {
		return
	}
	conn := apiConn{s.ch, s.ctx}
	defer func() { _ = conn.Close() }()
	who, ok := principalOf(s.sc.Permissions)
	if !ok {
		return
	}
	s.log.Debug("ssh api connection", "principal", who.ID)
	s.begins(door{}, "api", "", nil)
	s.c.srv.cfg.API(s.ctx, who, conn)
}

// apiConn is a channel for an HTTP server, which may close it while it is
// being read and written. CloseWrite is left out: it may not be called then.
type apiConn struct {
	gossh.Channel
	ctx context.Context // of the session
}

// Close says whether what was asked for was answered, or cut off.
func (a apiConn) Close() error {
	status := 0
	if a.ctx.Err() != nil {
		status = exitUnknown
	}
	_ = sendStatus(a.Channel, status)
	return a.Channel.Close()
}
