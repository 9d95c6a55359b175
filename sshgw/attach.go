package sshgw

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// lasts reports whether what the client asks for is a session that outlives
// it: a shell on a terminal, and whatever runs on one under a session's name.
func (s *session) lasts(d door, kind string) bool {
	return d.ref != "" && (kind == "shell" && s.tty != nil || (kind == "shell" || kind == "exec") && d.session != "")
}

// attach opens a session and takes this client's part of it to its end, which
// need not be that of the session.
func (s *session) attach(d door, command string) (guest.Exit, error) {
	none := guest.Exit{Code: exitNotStarted}
	if s.tty == nil {
		return none, fault.New(fault.Invalid, "a session needs a terminal: ssh -t %s+%s@gw; to run a command without one, leave out \"+%s\"", d.ref, d.session, d.session)
	}
	if s.limits().Command != "" { // what runs in a session may be anything else
		return none, fault.New(fault.Denied, "your key runs one command and takes up no session; leave out \"+%s\"", d.session)
	}
	r, err := s.wants.request(d.session)
	if err != nil {
		return none, err
	}
	reminded := d.session == "" && s.remind(d)
	up, told := s.wake(d)
	v := &view{s: s, door: d, watch: r.Mode == sandbox.ViewWatch}
	v.screen = &screen{s: s, said: reminded || told || s.agent, before: func() { up(true) }}
	agent, stop := s.forwardAgent(d, agentPath(d.account))
	defer stop()
	r.Command = guest.Command{Label: "ssh session", Script: command, User: d.account, Env: slices.Concat(s.env.vars, agent), TTY: s.terminal()}
	r.From = s.sc.RemoteAddr().String()
	r.Notice = v.screen.tell
	v.SessionProcess, err = d.ops.OpenSession(s.ctx, d.ref, r, guest.Output{Stdout: v.screen})
	if err != nil {
		up(false)
		if e := fault.From(err); e.Code == fault.State && e.Field == "user" { // it runs as another one
			err = fault.Wrap(err, e.Code, "%s; take it up with: %s", e.Message, d.back(d.session))
		}
		return none, err
	}
	defer func() { _ = v.Close() }()
	v.screen.draw()
	v.record, v.created = v.Session()
	recordOf(s.ch).named(v.record.Name)
	s.log.Info("ssh session attached", "principal", d.who.ID, "where", d.ref, "session", quoted(v.record.Name), "id", v.record.ID, "new", v.created, "watch", v.watch)
	s.setView(v)
	defer s.setView(nil)
	return v.part(s.drive(v))
}

// agentPath is where the ssh agent of whoever has attached last is found in the
// sandbox. It stays the same, because the environment of a session does.
func agentPath(account string) string {
	if account == "" {
		account = rootUser
	}
	return "/tmp/.sandgate-agent-" + account
}

// remind says which detached sessions of the principal's there are, and how to
// come back to one.
func (s *session) remind(d door) bool {
	list, err := d.ops.Sessions(s.ctx, d.ref, false)
	if err != nil {
		return false // opening the session says what is wrong
	}
	list = slices.DeleteFunc(list, func(x sandbox.Session) bool { return x.Status != sandbox.SessionDetached || x.Owner != d.who.ID })
	if len(list) == 0 {
		return false
	}
	slices.SortFunc(list, func(a, b sandbox.Session) int { return b.DetachedAt.Compare(a.DetachedAt) })
	const most = 5
	names, now := make([]string, 0, most), s.c.srv.cfg.Now()
	for _, x := range list[:min(len(list), most)] {
		names = append(names, x.Name+" ("+ago(now.Sub(x.DetachedAt))+")")
	}
	more := ""
	if n := len(list) - most; n > 0 {
		more = ", …"
	}
	s.say("sandgate: " + oneLine("detached here: "+strings.Join(names, ", ")+more+"; come back with: "+d.back(list[0].Name)))
	return true
}

// back is the command that leads back to a session.
func (d door) back(session string) string { return "ssh -t " + d.ref + "+" + session + "@gw" }

// errLeft means that the client left its session by itself, and may still look.
var errLeft = errors.New("the client has left the session")

// view is one client's end of a session.
type view struct {
	sandbox.SessionProcess
	s       *session
	door    door
	screen  *screen
	watch   bool
	record  sandbox.Session // as it was when it was opened
	created bool            // this client began it
}

// present is the session as it is now. It may have another name than it had.
func (v *view) present() (sandbox.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), partTime) // the client's own may be over
	defer cancel()
	return v.door.ops.Session(ctx, v.record.SandboxID, v.record.ID)
}

// name is what the session is called now, as far as that can be found out.
func (v *view) name() string {
	if x, err := v.present(); err == nil {
		return x.Name
	}
	return v.record.Name
}

// Write passes on what is typed. Who watches types to nobody, and Ctrl-C ends
// the watching.
func (v *view) Write(b []byte) (int, error) {
	if !v.watch {
		return v.SessionProcess.Write(b)
	}
	if isInterrupt(b) {
		v.s.end(errLeft)
		return 0, errLeft
	}
	return len(b), nil
}

// isInterrupt reports whether Ctrl-C is among what was typed, in one of the
// forms in which terminals send it.
func isInterrupt(b []byte) bool {
	for _, form := range []string{"\x03", "\x1b[99;5u", "\x1b[27;5;99~"} {
		if bytes.Contains(b, []byte(form)) {
			return true
		}
	}
	return false
}

// endOfInput is how long the end of what is typed is held back.
const endOfInput = time.Second

// CloseWrite passes on the end of what is typed; a watcher has typed nothing.
// When a terminal window is closed, ssh reports the end of the input and dies a
// moment later. A shell that got to know would end, so it is told only when the
// client is still there, and only by who began the session. Who found it there
// leaves: it is not the end of what others type.
func (v *view) CloseWrite() error {
	if v.watch {
		return nil
	}
	held := time.NewTimer(endOfInput)
	defer held.Stop()
	select {
	case <-v.s.ctx.Done():
		return nil
	case <-held.C:
		if !v.created {
			v.s.end(errLeft)
			return nil
		}
		return v.SessionProcess.CloseWrite()
	}
}

// CloseOutput is called when the client shows no more. The session has others
// to show it to.
func (v *view) CloseOutput(context.Context) error {
	v.s.end(errLeft)
	return nil
}

// partTime bounds how long a client's end takes that has left.
const partTime = 2 * time.Second

// part says how this client's part ended, given what waiting for it said.
func (v *view) part(exit guest.Exit, err error) (guest.Exit, error) {
	if err == nil {
		v.screen.leave(false)
		return exit, nil
	}
	why := context.Cause(v.s.ctx)
	if errors.Is(why, errLeft) || errors.Is(why, errStopping) {
		// The client still looks: its terminal is to be left in good order.
		ctx, cancel := context.WithTimeout(context.Background(), partTime)
		defer cancel()
		_ = v.Close()
		_, _ = v.SessionProcess.Wait(ctx)
	}
	v.screen.leave(true)
	switch {
	case errors.Is(why, errLeft):
		v.s.say("sandgate: left " + v.name() + "; it goes on")
		return guest.Exit{}, nil
	case errors.Is(why, errStopping):
		name := v.name()
		return guest.Exit{Code: exitUnknown}, fault.Wrap(why, fault.Unavailable, "the gateway is stopping; session %s goes on, come back with: %s", name, v.door.back(name))
	case why != nil:
		return guest.Exit{Code: exitUnknown}, errGone
	case errors.Is(err, sandbox.ErrDetached):
		if said := fault.From(err).Error(); said != sandbox.ErrDetached.Error() { // by whom
			v.s.say("sandgate: " + oneLine(said))
		}
		name := v.name()
		v.s.say("detached: " + name + "; come back with: " + v.door.back(name))
		return guest.Exit{}, nil
	}
	// The sandbox was paused, or lost. If the session was not, say how to get
	// there again.
	if x, gone := v.present(); gone == nil && x.Status != sandbox.SessionEnded {
		err = fault.Wrap(err, fault.CodeOf(err), "%s; come back to %s with: %s", fault.From(err).Error(), x.Name, v.door.back(x.Name))
	}
	return guest.Exit{Code: exitUnknown}, err
}
