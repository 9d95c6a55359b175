package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// OpenSession attaches to a session or starts it.
func (a *Actor) OpenSession(ctx context.Context, ref string, r SessionRequest, out guest.Output) (SessionProcess, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	s, _, err := a.awake(ctx, ref, "OpenSession", whyUsed)
	if err != nil {
		return nil, err
	}
	v := a.e.newViewer(a.who, &r)
	for {
		ls := a.e.sessions.find(s.ID, r.Name)
		if r.Name == "" {
			ls = nil
		}
		switch {
		case ls == nil && (r.Open == OpenAttach || r.Mode == ViewWatch):
			return nil, noSession(r.Name)
		case ls == nil:
			if ls, err = a.e.startSession(ctx, &s, &r, v, out.Stdout); err != nil {
				return nil, a.e.explain(ctx, s.ID, err)
			}
			if ls == nil {
				return v, nil
			}
		case r.Open == OpenCreate:
			return nil, sessionExists(r.Name)
		}
		// One that is being started is waited for, and so is the end of one
		// that is being ended: its name is free then.
		select {
		case <-ls.started:
		case <-ctx.Done():
			return nil, fault.From(ctx.Err())
		}
		err := ls.runsAs(ctx, r.Command.User)
		if err == nil {
			err = ls.join(ctx, v, &r, out.Stdout)
		}
		if err == nil {
			return v, nil
		}
		if !errors.Is(err, errSessionOver) {
			return nil, err
		}
		select {
		case <-ls.gone:
		case <-ctx.Done():
			return nil, fault.From(ctx.Err())
		}
	}
}

// validate checks a request and fills in what it leaves open.
func (r *SessionRequest) validate() error {
	switch r.Mode {
	case "":
		r.Mode = ViewControl
	case ViewControl, ViewWatch:
	default:
		return fault.InvalidField("mode", "%q is not a mode: use control or watch", clip(string(r.Mode), 32))
	}
	switch r.Open {
	case OpenOrCreate, OpenCreate:
	case OpenAttach:
		if r.Name == "" {
			return fault.InvalidField("name", "say which session: session list shows them")
		}
	default:
		return fault.InvalidField("open", "%q is none: use attach, create, or leave it out", clip(string(r.Open), 32))
	}
	if r.Mode == ViewWatch && r.Name == "" {
		return fault.InvalidField("name", "say which session: session list shows them")
	}
	if r.Name != "" && !isSessionID(r.Name) {
		if err := ValidateSessionName(r.Name); err != nil {
			return err
		}
	}
	if isSessionID(r.Name) && r.Open != OpenAttach && r.Mode != ViewWatch {
		r.Open = OpenAttach // an id is of one that there is
	}
	if r.Command.TTY == nil {
		return fault.InvalidField("tty", "a session needs a terminal")
	}
	r.From = clip(strings.ToValidUTF8(r.From, "?"), 128)
	return nil
}

// tell passes a line to whoever asked for the session.
func (r *SessionRequest) tell(line string) {
	if r.Notice != nil {
		r.Notice(line)
	}
}

func noSession(name string) error {
	return fault.New(fault.NotFound, "no session %q; `session list` shows them", clip(name, 64)).About("session")
}

func sessionExists(name string) error {
	e := fault.New(fault.Exists, "there is a session %q in the sandbox already", clip(name, 64)).About("session")
	e.Field = "name"
	return e
}

// startSession starts a session with v as its first client. When another one of
// that name came first it returns that.
//
// The record comes before the process, so that there never is a session that
// nobody knows of; the end of one that was never started is recorded when the
// server finds that there is no process.
func (e *Engine) startSession(ctx context.Context, s *Sandbox, r *SessionRequest, v *viewer, out io.Writer) (other *liveSession, err error) {
	ls := e.newSession(e.cfg.NewID(prefixSession), s.ID, r.Name)
	if other, err = e.sessions.add(ls, e.cfg.MaxSessions); other != nil || err != nil {
		return other, err
	}
	rec := Session{
		ID: ls.id, SandboxID: s.ID, Name: ls.name(), Owner: v.principal, ProcessID: ls.id, Command: commandText(&r.Command),
		User: r.Command.User, Status: SessionAttached, CreatedAt: e.cfg.Now(),
	}
	rec.ActiveAt = rec.CreatedAt
	ls.size = terminalSize(r.Command.TTY.Size)
	v.ls, v.since, v.used, v.size, v.told = ls, rec.CreatedAt, rec.CreatedAt, ls.size, true
	v.draw = straight(out, v)
	if err = ls.record(ctx, &rec, r, v); err != nil {
		ls.abandon()
		return nil, err
	}
	ls.touch()
	p, err := ls.launch(ctx, s, r.Command, v)
	if err != nil {
		return nil, err
	}
	v.opened, v.created = rec, true
	v.proc.Store(p)
	if ls.tap != nil {
		v.input = ls.tap.WantsInput()
		ls.tap.Resized(ls.size)
	}
	ls.mu.Lock()
	ls.viewers = []*viewer{v}
	ls.latest.Store(v)
	ls.mu.Unlock()
	ls.run()
	return nil, nil
}

// record puts a session on record that is about to be started.
func (ls *liveSession) record(ctx context.Context, rec *Session, r *SessionRequest, v *viewer) (err error) {
	e := ls.e
	if e.recorder != nil {
		if ls.tap, err = e.recorder.begin(ctx, rec, r); err != nil {
			return err
		}
	}
	start := map[string]any{"sessionId": ls.id, "name": rec.Name}
	if rec.Recording != "" {
		start["recordingId"] = rec.Recording
	}
	return e.cfg.Store.CreateSession(ctx, *rec, e.event(ls.sandboxID, EventSessionStart, v.principal, start), ls.attachEvent(v, rec.Name))
}

// launch starts the process of a session. Whether it runs is always found out,
// also when the caller gives up: then it is ended.
func (ls *liveSession) launch(ctx context.Context, s *Sandbox, cmd guest.Command, v *viewer) (*process, error) {
	cmd.ID, cmd.Label, cmd.Env, cmd.Keep, cmd.NoStdin = ls.id, "session", s.environment(cmd.Env), true, false
	type begun struct {
		p   *process
		err error
	}
	ch := make(chan begun, 1)
	ls.e.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		p, err := ls.e.start(ctx, ls.sandboxID, cmd, v.draw.output(guest.HoldOldest))
		if err == nil {
			p.touch = ls.touch
		}
		ch <- begun{p, err}
	})
	select {
	case b := <-ch:
		if b.err != nil {
			ls.stillborn(b.err)
		}
		return b.p, b.err
	case <-ctx.Done():
		ls.e.background(func(context.Context) {
			b := <-ch
			if b.err != nil {
				ls.stillborn(b.err)
				return
			}
			b.p.Close()
			ls.run()
			ls.part("its client left before it was started", "system")
		})
		return nil, fault.From(ctx.Err())
	}
}

// run lets a session that has been started go its way.
func (ls *liveSession) run() {
	ls.mu.Lock()
	if !ls.controlled() {
		ls.detachedAt = ls.e.cfg.Now()
	}
	ls.markStarted()
	ls.hang() // when the sandbox was stopped meanwhile
	ls.mu.Unlock()
	ls.e.background(ls.keep)
	ls.e.pulse.beat()
}

// abandon takes back what never was on record.
func (ls *liveSession) abandon() {
	ls.mu.Lock()
	ls.over = true
	ls.mu.Unlock()
	ls.markStarted()
	ls.e.sessions.remove(ls)
	close(ls.gone)
	if ls.tap != nil {
		ls.tap.Ended(nil)
	}
}

// stillborn ends a session whose process was not started. Where the answer was
// lost it may run all the same, and then it is ended.
func (ls *liveSession) stillborn(err error) {
	if errors.Is(err, guest.ErrLost) || fault.Is(err, fault.Cancelled) || fault.Is(err, fault.Timeout) {
		ls.run()
		ls.part("whether it was started is not known", "system")
		return
	}
	ls.markStarted()
	ls.finish(nil, "it could not be started: "+fault.From(err).Error(), 0)
}

// terminalSize is the size of a terminal that was asked for.
func terminalSize(size guest.Size) guest.Size {
	if size.Rows == 0 {
		size.Rows = 24
	}
	if size.Cols == 0 {
		size.Cols = 80
	}
	return size
}

// commandText is what a session runs, for a person; empty for the login shell.
func commandText(c *guest.Command) string {
	if len(c.Args) > 0 {
		return clip(strings.Join(c.Args, " "), 256)
	}
	return clip(c.Script, 256)
}

// join attaches a client to a session that runs. What the terminal shows is
// drawn first.
func (ls *liveSession) join(ctx context.Context, v *viewer, r *SessionRequest, out io.Writer) error {
	e := ls.e
	v.ls, v.since = ls, e.cfg.Now()
	v.size, v.used = terminalSize(r.Command.TTY.Size), v.since
	v.draw = redrawn(out, v)
	others, err := ls.enter(v)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		v.draw.discard()
		ls.leave(v, "")
		return err
	}
	hold := guest.HoldNever
	if v.mode == ViewControl {
		hold = guest.HoldOldest
	}
	p, err := e.attach(ctx, ls.sandboxID, ls.id, -1, v.draw.output(hold))
	if err != nil {
		if fault.Is(err, fault.NotFound) && ls.ending() {
			err = errSessionOver
		}
		return fail(e.explain(ctx, ls.sandboxID, err))
	}
	p.touch = ls.touch
	if v.proc.Store(p); v.ctx.Err() != nil { // detached before it was attached
		p.Close()
		return fail(context.Cause(v.ctx))
	}
	rec, err := e.cfg.Store.UpdateSession(ctx, ls.id, func(s *Session) ([]Event, error) {
		if s.Status == SessionEnded {
			return nil, errSessionOver
		}
		ls.present(s)
		return []Event{ls.attachEvent(v, s.Name)}, nil
	})
	if err != nil {
		p.Close()
		return fail(err)
	}
	v.opened = rec
	ls.introduce(v, r, others)
	ls.describe(&v.opened)
	cur, _, _ := p.current()
	v.draw.begin(ctx, cur)
	if v.mode != ViewControl {
		return nil
	}
	if r.Alone {
		for _, other := range others {
			if other.mode == ViewControl {
				other.detach(fault.Wrap(ErrDetached, fault.Cancelled, "detached: %s took session %q over", v.person(), ls.name()).About("session"), "taken over by "+v.principal)
			}
		}
	}
	if v.size != ls.known(cur.Size()) {
		// What the program says to a size that it did not have yet is its
		// own way to draw itself anew.
		_ = ls.fit(ctx, v, v.size)
	}
	return nil
}

// known is the size of the terminal: what the guest says, or what this server
// has told it.
func (ls *liveSession) known(said guest.Size) guest.Size {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if said.Rows != 0 && said.Cols != 0 {
		ls.size = said
	}
	return ls.size
}

func (ls *liveSession) ending() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.over || ls.parting != ""
}

// introduce tells the newcomer who is there, and the others who has come.
func (ls *liveSession) introduce(v *viewer, r *SessionRequest, others []*viewer) {
	ls.mu.Lock()
	v.told = true
	lines := make([]string, 0, 1+len(others))
	if ls.tap != nil {
		input := ls.tap.WantsInput()
		v.input = input && v.mode == ViewControl
		lines = append(lines, recordedNotice(input))
	}
	ls.mu.Unlock()
	for _, other := range others {
		lines = append(lines, other.person()+other.does())
		other.tell(v.person() + v.does())
	}
	// The newcomer reads it before anything is drawn.
	for _, line := range lines {
		r.tell(line)
	}
}
