package sandbox

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// ahead is an offset of output that lies ahead of every process: who attaches
// there gets what comes next.
const ahead = 1 << 59

// minded reports whether the keeper has to be attached: while nobody controls
// the session, and always for one that is recorded. The caller holds mu.
func (ls *liveSession) minded() bool {
	return !ls.over && !ls.asleep && ls.isStarted() && (ls.tap != nil || !ls.controlled())
}

// keep is the keeper of a session, from its start to its end. While nobody
// controls the session it is attached to the process and throws away what comes:
// that is how the output of a detached session counts as activity, and how its
// end is noticed. It costs a goroutine, and no more than that while there is a
// client.
func (ls *liveSession) keep(ctx context.Context) {
	retry := attachRetry
	for {
		ls.mu.Lock()
		over, mind := ls.over, ls.minded()
		var minding context.Context
		if mind {
			minding, ls.interrupt = context.WithCancel(ctx)
		}
		ls.mu.Unlock()
		if over {
			return
		}
		if !mind {
			select {
			case <-ls.changed:
			case <-ctx.Done():
				return
			}
			continue
		}
		began := time.Now()
		err := ls.mind(minding)
		ls.mu.Lock()
		ls.interrupt()
		stopped := !ls.minded()
		ls.interrupt = nil
		ls.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if stopped || err == nil {
			retry = attachRetry
			continue
		}
		if time.Since(began) > maxAttachRetry {
			retry = attachRetry
		}
		if ls.lost(ctx, err) {
			select {
			case <-time.After(retry):
				retry = min(2*retry, maxAttachRetry)
			case <-ls.changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// mind follows the process until its end, which it has recorded, or until ctx
// ends.
func (ls *liveSession) mind(ctx context.Context) error {
	ls.mu.Lock()
	out, from := guest.Output{Stdout: touchWriter{io.Discard, ls.touch}, Hold: guest.HoldNever}, ls.seen
	ls.mu.Unlock()
	if from == 0 {
		from = ahead
	}
	if ls.tap != nil {
		out, from = tapOutput(ls.tap, ls.touch), ls.tapFrom
	}
	p, err := ls.e.attach(ctx, ls.sandboxID, ls.id, from, out)
	if err != nil {
		return err
	}
	defer p.Close()
	exit, err := p.Wait(ctx)
	cur, _, _ := p.current()
	if ls.tap != nil {
		ls.tapFrom = cur.Offset()
	}
	ls.mu.Lock()
	ls.seen = max(ls.seen, cur.Offset())
	ls.mu.Unlock()
	if err != nil {
		return err
	}
	ls.finish(&exit, "", cur.Offset())
	return nil
}

// lost looks why a process cannot be followed. It is true when that may pass,
// and otherwise the session has ended, or waits for its sandbox.
func (ls *liveSession) lost(ctx context.Context, err error) (retry bool) {
	e := ls.e
	// Whoever pauses, resumes or removes the sandbox holds the lock until the
	// record says so.
	unlock, lerr := e.locks.lock(ctx, ls.sandboxID)
	if lerr != nil {
		return false
	}
	s, serr := e.cfg.Store.Sandbox(ctx, ls.sandboxID)
	unlock()
	switch {
	case ctx.Err() != nil:
	case fault.Is(serr, fault.NotFound):
		ls.finish(nil, "its sandbox is gone", -1)
	case serr != nil:
		e.cfg.Log.Warn("look for the sandbox of a session; trying on", "session", ls.id, "sandbox", ls.sandboxID, "err", serr)
		return true
	case s.asleep():
		ls.sleep()
	case !s.Status.Up():
		ls.finish(nil, fault.From(s.notUp()).Error(), -1)
	case fault.Is(err, fault.NotFound) && time.Now().Before(ls.doubt):
		return true
	case fault.Is(err, fault.NotFound):
		if st, ierr := e.cfg.Driver.Inspect(ctx, ls.sandboxID); ierr != nil || st.State != driver.Running {
			return true // whoever notices the end of the sandbox says more
		}
		ls.finish(nil, fault.From(e.restores.explain(ls.sandboxID, errSessionLost)).Error(), -1)
	default:
		return true
	}
	return false
}

var errSessionLost = fault.New(fault.State, "its process is gone")

// save writes down what the record does not say yet, in the background. The
// caller holds mu.
func (ls *liveSession) save() {
	ls.unsaved = true
	if ls.saving || ls.e.ctx.Err() != nil { // the next server finds what is so
		return
	}
	ls.saving = true
	ls.e.background(func(ctx context.Context) {
		for ls.saveOnce(ctx) {
		}
	})
}

// saveOnce is false when there is nothing to save any more, or nobody to do it.
func (ls *liveSession) saveOnce(ctx context.Context) bool {
	ls.mu.Lock()
	if !ls.unsaved || ls.over {
		ls.saving = false
		ls.mu.Unlock()
		return false
	}
	facts := slices.Clone(ls.facts)
	ls.facts, ls.unsaved = nil, false
	ls.mu.Unlock()
	// A server that stops still says what it knows.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	_, err := ls.e.cfg.Store.UpdateSession(bounded, ls.id, func(s *Session) ([]Event, error) {
		if s.Status != SessionEnded {
			ls.present(s)
		}
		return facts, nil
	})
	cancel()
	ls.e.pulse.beat()
	if err == nil || fault.Is(err, fault.NotFound) {
		return true
	}
	ls.mu.Lock()
	ls.facts, ls.unsaved = append(facts, ls.facts...), true
	ls.saving = ctx.Err() == nil
	ls.mu.Unlock()
	if ctx.Err() != nil {
		return false // the next server finds what is so
	}
	ls.e.cfg.Log.Warn("record who is attached to a session; trying on", "session", ls.id, "err", err)
	select {
	case <-time.After(storeRetry):
	case <-ctx.Done():
	}
	return true
}

// present sets in a record what is so now.
func (ls *liveSession) present(s *Session) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s.Status, s.DetachedAt = SessionDetached, ls.detachedAt
	if ls.controlled() {
		s.Status, s.DetachedAt = SessionAttached, time.Time{}
	}
	if at := ls.activeAt(); at.After(s.ActiveAt) {
		s.ActiveAt = at
	}
}
