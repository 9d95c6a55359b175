package sandbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// liveSession is a session that has not ended, as this server knows it. What
// the terminal shows is not here: the guest has it.
type liveSession struct {
	e         *Engine
	id        string // and that of its process in the guest
	sandboxID string
	touch     func() // notes a byte that went in or out

	title  atomic.Pointer[string]
	active atomic.Int64           // when touch was last called, in nanoseconds
	latest atomic.Pointer[viewer] // who typed or resized last, and so decides on the size

	started chan struct{} // closed when it runs, or never will
	gone    chan struct{} // closed when its end is on record
	changed chan struct{} // wakes the keeper

	mu         sync.Mutex
	viewers    []*viewer // in order of arrival
	size       guest.Size
	fitting    bool      // somebody tells the terminal its size
	asleep     bool      // its sandbox is paused with its memory
	over       bool      // it has ended
	parting    string    // why it is being ended
	partingBy  string    // by whom
	hanging    bool      // somebody is at that
	doubt      time.Time // until then it may come to be, though it is not there
	detachedAt time.Time // zero while somebody controls it
	tap        sessionTap
	tapFrom    int64   // up to where the tap has the output
	seen       int64   // up to where the last client had it; 0 when that is not known
	facts      []Event // not on record yet
	unsaved    bool    // the record is not what it should be
	saving     bool
	interrupt  context.CancelFunc // of what the keeper waits in; nil when it does not
}

func (e *Engine) newSession(id, sandboxID, name string) *liveSession {
	ls := &liveSession{
		e: e, id: id, sandboxID: sandboxID,
		started: make(chan struct{}), gone: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	ls.setName(name)
	touchBox := e.toucher(sandboxID)
	ls.touch = func() {
		touchBox()
		ls.active.Store(e.cfg.Now().UnixNano())
	}
	return ls
}

func (ls *liveSession) name() string      { return *ls.title.Load() }
func (ls *liveSession) setName(to string) { ls.title.Store(&to) }
func (ls *liveSession) isStarted() bool   { return closed(ls.started) }
func (ls *liveSession) markStarted()      { close(ls.started) }
func (ls *liveSession) activeAt() time.Time {
	n := ls.active.Load()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// controlled reports whether a client controls it. The caller holds mu.
func (ls *liveSession) controlled() bool {
	return slices.ContainsFunc(ls.viewers, func(v *viewer) bool { return v.mode == ViewControl })
}

// stir has the keeper look again. The caller holds mu.
func (ls *liveSession) stir() {
	if ls.interrupt != nil && !ls.minded() {
		ls.interrupt()
	}
	select {
	case ls.changed <- struct{}{}:
	default:
	}
}

// errSessionOver is for whoever comes too late.
var errSessionOver = fault.New(fault.State, "the session has ended").About("session")

// runsAs says no when a user is asked for, and the session runs as another one:
// whoever means to be an ordinary user must not come to type as root unawares.
func (ls *liveSession) runsAs(ctx context.Context, user string) error {
	if user == "" {
		return nil
	}
	rec, err := ls.e.cfg.Store.Session(ctx, ls.id)
	switch {
	case fault.Is(err, fault.NotFound): // it never came to be
		return errSessionOver
	case err != nil:
		return err
	}
	if is := cmp.Or(rec.User, "root"); is != user {
		if ls.ending() { // its name is free in a moment
			return errSessionOver
		}
		e := fault.New(fault.State, "session %q runs as %s, not as %s", ls.name(), is, clip(user, 64)).About("session")
		e.Field = "user"
		return e
	}
	return nil
}

// enter gives a client its place. It returns the others who are there.
func (ls *liveSession) enter(v *viewer) (others []*viewer, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch n := len(ls.viewers); {
	case ls.over || ls.parting != "":
		return nil, errSessionOver
	case ls.asleep:
		return nil, fault.New(fault.Unavailable, "the sandbox of the session is paused; try again").About("sandbox")
	case n >= ls.e.cfg.MaxViewers:
		return nil, fault.New(fault.Exhausted, "session %q has %d clients, as many as it may; detach them first: session detach", ls.name(), n).About("session")
	}
	others = slices.Clone(ls.viewers)
	ls.viewers = append(ls.viewers, v)
	if v.mode == ViewControl {
		ls.latest.Store(v)
		ls.detachedAt = time.Time{}
	}
	ls.stir()
	return others, nil
}

// leave takes a client's place back and notes why it left. The others learn of
// it, and one of them decides on the size from now on.
func (ls *liveSession) leave(v *viewer, reason string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	i := slices.Index(ls.viewers, v)
	if i < 0 {
		return
	}
	ls.viewers = slices.Delete(slices.Clone(ls.viewers), i, i+1)
	if p := v.proc.Load(); p != nil {
		cur, _, _ := p.current()
		ls.seen = max(ls.seen, cur.Offset()) // what is printed before the keeper comes counts
	}
	if v.told {
		ls.facts = append(ls.facts, ls.detachEvent(v, ls.name(), reason))
		for _, other := range ls.viewers {
			other.tell(v.principal + " left")
		}
	}
	if ls.latest.Load() == v {
		ls.inherit()
	}
	if !ls.controlled() && ls.detachedAt.IsZero() {
		ls.detachedAt = ls.e.cfg.Now()
	}
	ls.stir()
	ls.save()
}

// inherit lets the client that typed last of those who are left decide on the
// size. The caller holds mu.
func (ls *liveSession) inherit() {
	var heir *viewer
	for _, v := range ls.viewers {
		if v.mode == ViewControl && (heir == nil || !v.used.Before(heir.used)) {
			heir = v
		}
	}
	ls.latest.Store(heir)
	if heir != nil && heir.size != ls.size && !ls.over && !ls.asleep && ls.e.ctx.Err() == nil {
		ls.e.background(func(ctx context.Context) { _ = ls.fit(ctx, heir, heir.size) })
	}
}

// use notes that a client types or resizes: the latest to do so decides.
func (ls *liveSession) use(ctx context.Context, v *viewer, size guest.Size) error {
	ls.mu.Lock()
	if size.Rows != 0 {
		v.size.Rows = size.Rows
	}
	if size.Cols != 0 {
		v.size.Cols = size.Cols
	}
	if v.mode != ViewControl { // its own redraw is all that this matters for
		ls.mu.Unlock()
		return nil
	}
	size, v.used = v.size, ls.e.cfg.Now()
	ls.latest.Store(v)
	fits := size == ls.size || size.Rows == 0 || size.Cols == 0
	ls.mu.Unlock()
	if fits {
		return nil
	}
	return ls.fit(ctx, v, size)
}

// fit gives the terminal a size. While somebody else is at it, that one goes on
// to this size, so that the last one that was asked for is what stays.
func (ls *liveSession) fit(ctx context.Context, v *viewer, size guest.Size) (err error) {
	ls.mu.Lock()
	ls.size = size
	if ls.fitting {
		ls.mu.Unlock()
		return nil
	}
	ls.fitting = true
	tap := ls.tap
	ls.mu.Unlock()
	for {
		if err = v.proc.Load().Resize(ctx, size); err == nil && tap != nil {
			tap.Resized(size)
		}
		ls.mu.Lock()
		if ls.size == size || err != nil {
			ls.fitting = false
			if err != nil {
				ls.size = guest.Size{} // not known: whoever types next tells it again
			}
			ls.mu.Unlock()
			return err
		}
		size = ls.size
		ls.mu.Unlock()
	}
}

// sizeOf is the size of a client's terminal.
func (ls *liveSession) sizeOf(v *viewer) guest.Size {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return v.size
}

// describe adds to a record what this server alone knows.
func (ls *liveSession) describe(s *Session) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if at := ls.activeAt(); at.After(s.ActiveAt) {
		s.ActiveAt = at
	}
	s.Name = ls.name()
	s.Status, s.DetachedAt = SessionDetached, ls.detachedAt
	if ls.controlled() || !ls.isStarted() {
		s.Status, s.DetachedAt = SessionAttached, time.Time{}
	}
	if s.Status == SessionDetached {
		s.EndsAt = ls.endsAt()
	}
	for _, v := range ls.viewers {
		if v.told {
			s.Viewers = append(s.Viewers, Viewer{Principal: v.principal, From: v.from, Mode: v.mode, Since: v.since, Size: v.size})
		}
	}
}
