package sandbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

var _ SessionProcess = (*viewer)(nil)

// viewer is one client of a session, with an attachment of its own.
type viewer struct {
	ls        *liveSession
	proc      atomic.Pointer[process]
	who       keys.Principal
	principal string // who.ID
	from      string
	mode      ViewMode
	since     time.Time
	opened    Session
	created   bool
	input     bool // what it types is recorded
	draw      *drawer
	received  atomic.Int64 // bytes that it typed

	// ctx ends when it is detached; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Of the session's lock.
	size guest.Size
	used time.Time // when it last typed or resized
	told bool      // the others know of it

	notices notices
}

func (e *Engine) newViewer(who keys.Principal, r *SessionRequest) *viewer {
	v := &viewer{who: who, principal: who.ID, from: r.From, mode: r.Mode}
	v.ctx, v.cancel = context.WithCancelCause(context.Background())
	v.notices.say = r.Notice
	return v
}

// person names a client to another one.
func (v *viewer) person() string {
	if v.from == "" {
		return v.principal
	}
	return v.principal + " (" + v.from + ")"
}

func (v *viewer) does() string {
	if v.mode == ViewWatch {
		return " watches this session"
	}
	return " shares this session"
}

func (v *viewer) tell(line string) { v.notices.add(line) }

// Session returns the record as it was when it was opened.
func (v *viewer) Session() (Session, bool) { return v.opened, v.created }

// ID returns the id of the process.
func (v *viewer) ID() string { return v.proc.Load().ID() }

// Write types.
func (v *viewer) Write(b []byte) (int, error) {
	if v.mode != ViewControl {
		return len(b), nil
	}
	if v.ls.latest.Load() != v {
		_ = v.ls.use(v.ctx, v, guest.Size{}) // a size that was not told makes no difference to what is typed
	}
	n, err := v.proc.Load().Write(b)
	v.received.Add(int64(n))
	if v.input {
		v.ls.typed(b[:n])
	}
	return n, err
}

// typed passes what was typed on to the recording, unless that has ended.
func (ls *liveSession) typed(b []byte) {
	ls.mu.Lock()
	tap, over := ls.tap, ls.over
	ls.mu.Unlock()
	if !over {
		tap.Input(b)
	}
}

// CloseWrite types the end of file.
func (v *viewer) CloseWrite() error {
	if v.mode != ViewControl {
		return nil
	}
	return v.proc.Load().CloseWrite()
}

// Resize tells the size of the client's terminal.
func (v *viewer) Resize(ctx context.Context, size guest.Size) error {
	return v.ls.use(ctx, v, size)
}

// Signal sends a signal to what runs in the foreground.
func (v *viewer) Signal(ctx context.Context, name string) error {
	if v.mode != ViewControl {
		return nil
	}
	return v.proc.Load().Signal(ctx, name)
}

// CloseOutput drops what comes for this client. The session's output is not
// this client's to close.
func (v *viewer) CloseOutput(context.Context) error {
	v.draw.discard()
	return nil
}

// Hangup detaches.
func (v *viewer) Hangup(context.Context) error { return v.Close() }

// Close detaches.
func (v *viewer) Close() error {
	v.detach(ErrDetached, "")
	return nil
}

// detach ends this client's part. The session goes on.
func (v *viewer) detach(why error, reason string) {
	v.cancel(why)
	if p := v.proc.Load(); p != nil {
		p.Close()
	}
	v.ls.leave(v, reason)
}

// Kill ends the session.
func (v *viewer) Kill(ctx context.Context) error {
	if v.mode != ViewControl {
		return fault.New(fault.Denied, "who watches a session cannot end it").About("session")
	}
	v.ls.part("ended by "+v.principal, v.principal)
	return v.ls.waitGone(ctx)
}

// waitGone waits for the end to be on record.
func (ls *liveSession) waitGone(ctx context.Context) error {
	select {
	case <-ls.gone:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// Wait waits for the end of the session, or of this client's part in it. The
// client's terminal is left in good order.
func (v *viewer) Wait(ctx context.Context) (guest.Exit, error) {
	wait, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(v.ctx, stop)()
	exit, err := v.proc.Load().Wait(wait)
	detached := context.Cause(v.ctx)
	switch {
	case err == nil:
		cur, _, _ := v.proc.Load().current()
		v.ls.finish(&exit, "", cur.Offset())
	case detached == nil && ctx.Err() != nil:
		return exit, err // of this wait alone
	case detached != nil:
		err = detached
	default:
		err = v.dropped(ctx, err)
	}
	v.notices.end()
	v.draw.restore()
	return exit, err
}

// dropped says why a client has lost its session.
func (v *viewer) dropped(ctx context.Context, err error) error {
	if s, serr := v.ls.e.cfg.Store.Sandbox(context.WithoutCancel(ctx), v.ls.sandboxID); serr == nil && s.asleep() {
		v.ls.sleep() // says it better
	} else if fault.Is(err, fault.NotFound) || fault.Is(err, fault.State) {
		// The end of the session is about to be recorded.
		patience, cancel := context.WithTimeout(ctx, takeUpTime)
		defer cancel()
		v.ls.leave(v, fault.From(err).Error())
		_ = v.ls.waitGone(patience)
	}
	if detached := context.Cause(v.ctx); detached != nil {
		return detached
	}
	v.detach(err, fault.From(err).Error())
	if errors.Is(err, guest.ErrLost) {
		err = fault.Wrap(err, fault.Unavailable, "the connection to the sandbox was lost; session %q goes on: attach to it again", v.ls.name()).About("session")
	}
	return err
}

// notices are lines for a client, told one after the other and never to the one
// who has them told: that must not wait for a client that does not listen.
type notices struct {
	mu     sync.Mutex
	say    func(string)
	lines  []string
	saying bool
}

// maxNotices bounds the lines that wait for a client that does not listen.
const maxNotices = 32

func (n *notices) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.say == nil || len(n.lines) >= maxNotices {
		return
	}
	n.lines = append(n.lines, line)
	if n.saying {
		return
	}
	n.saying = true
	go n.run()
}

// run ends when there is nothing more to say.
func (n *notices) run() {
	for {
		n.mu.Lock()
		if len(n.lines) == 0 || n.say == nil {
			n.saying = false
			n.mu.Unlock()
			return
		}
		line, say := n.lines[0], n.say
		n.lines = n.lines[1:]
		n.mu.Unlock()
		say(line)
	}
}

// end has nothing more said.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.say = nil
}
