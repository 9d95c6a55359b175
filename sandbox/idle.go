package sandbox

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// Idle is a sandbox in which nothing happens: no execution and no job is under
// way, nothing is read from or written to its files, and no byte has gone
// through a session or a connection into it for the idle timeout. That a
// session is open means nothing: its client may be asleep, or dead. Neither
// does what a command left behind when it ended, a daemon among others; what
// has to run on alone is started as a job.

// activity is what keeps a sandbox from being idle. The bytes of sessions touch
// it, so that costs no lock.
type activity struct {
	open int          // executions, jobs and file operations under way; guarded by Engine.mu
	last atomic.Int64 // when something last happened, in nanoseconds
}

// begin notes that something is under way in a sandbox; the returned func,
// called once, notes that it has ended.
func (e *Engine) begin(id string) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.activityOf(id)
	a.open++
	e.touched(a)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		a.open--
		e.touched(a)
	}
}

// activityOf returns the entry of a sandbox. The caller holds mu.
func (e *Engine) activityOf(id string) *activity {
	a := e.activity[id]
	if a == nil {
		a = &activity{}
		e.activity[id] = a
	}
	return a
}

func (e *Engine) touched(a *activity) { a.last.Store(e.cfg.Now().UnixNano()) }

// touch starts the idle time of a sandbox anew.
func (e *Engine) touch(id string) { e.toucher(id)() }

// toucher returns touch for one sandbox, cheap enough for every byte.
func (e *Engine) toucher(id string) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.activityOf(id)
	return func() { e.touched(a) }
}

// activeSince tells when something last happened in a sandbox as far as this
// server knows, and whether something is under way.
func (e *Engine) activeSince(s *Sandbox) (last time.Time, underWay bool) {
	last = s.ActiveAt
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.activity[s.ID]; a != nil {
		if seen := time.Unix(0, a.last.Load()); seen.After(last) {
			last = seen.UTC()
		}
		underWay = a.open > 0
	}
	return last, underWay
}

// counted lets every byte of a session's output touch its sandbox.
func counted(out guest.Output, touch func()) guest.Output {
	if out.Stdout != nil {
		out.Stdout = touchWriter{out.Stdout, touch}
	}
	if out.Stderr != nil {
		out.Stderr = touchWriter{out.Stderr, touch}
	}
	return out
}

type touchWriter struct {
	io.Writer
	touch func()
}

func (w touchWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if n > 0 { // what a client that is gone did not take is no sign of life
		w.touch()
	}
	return n, err
}

// activeStream is a connection into a sandbox whose bytes touch it.
type activeStream struct {
	guest.Stream
	touch func()
}

func (s *activeStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if n > 0 {
		s.touch()
	}
	return n, err
}

func (s *activeStream) Write(b []byte) (int, error) {
	s.touch()
	return s.Stream.Write(b)
}

// dueBatch bounds how many sandboxes are looked at in one go, and reapers how
// many of them are ended at a time.
const (
	dueBatch = 1000
	reapers  = 4
)

// Reap ends the sandboxes whose idle or paused timeout has passed, and the
// sessions that nobody has come back to. Run does so every few seconds.
func (e *Engine) Reap(ctx context.Context) {
	e.expireSessions()
	due, err := e.cfg.Store.Due(ctx, e.cfg.Driver.Name(), e.cfg.Now(), dueBatch)
	if err != nil {
		e.cfg.Log.Warn("list what is due", "err", err)
		return
	}
	turn := make(chan struct{}, reapers)
	var all sync.WaitGroup
	for _, s := range due {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			if err := e.reap(ctx, s.ID); err != nil {
				e.cfg.Log.Warn("end a sandbox whose time is up", "sandbox", s.ID, "status", s.Status, "err", err)
			}
		})
	}
	all.Wait()
	e.finishStopping(ctx)
}

// reapWait is how long a sandbox that is being worked on is waited for.
const reapWait = 2 * time.Second

// reap ends one sandbox if its time is up indeed. For one that is not idle the
// record learns since when, so that it is not looked at again before its time.
func (e *Engine) reap(ctx context.Context, id string) error {
	unlock, err := e.reapLock(ctx, id)
	if unlock == nil {
		return err
	}
	defer unlock()
	s, err := e.cfg.Store.Sandbox(ctx, id)
	if err != nil {
		return err
	}
	at, why, err := e.countdown(ctx, &s)
	if err != nil {
		return err
	}
	now := e.cfg.Now()
	switch {
	case s.Status == Idle && (at.IsZero() || at.After(now)):
		last, underWay := e.activeSince(&s)
		if underWay || at.IsZero() {
			last = now
		}
		return e.cfg.Store.TouchSandbox(ctx, id, last)
	case at.IsZero() || at.After(now):
		return nil
	}
	e.cfg.Log.Info("the time of a sandbox is up", "sandbox", id, "why", why)
	return e.destroyLocked(ctx, id, Terminated, why, "system")
}
