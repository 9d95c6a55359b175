package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// parking knows which sandboxes are paused, so that what waits for a process in
// one can tell a pause from a loss, and waits for its end. The zero value is
// ready.
type parking struct {
	mu    sync.Mutex
	spots map[string]*spot
	past  map[string]time.Duration // how long each was paused before
	cuts  map[string]string        // why the processes of one that is up have ended, the last time
}

// spot is one pause of one sandbox.
type spot struct {
	memory bool          // its processes go on afterwards
	over   chan struct{} // closed when the sandbox is up again, or ended, or what is above has changed
	since  time.Time     // of the clock that never jumps
}

// enter notes that a sandbox is paused.
func (p *parking) enter(id string, memory bool) {
	p.leave(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spots == nil {
		p.spots, p.past = map[string]*spot{}, map[string]time.Duration{}
	}
	p.spots[id] = &spot{memory: memory, over: make(chan struct{}), since: time.Now()}
}

// leave notes that a pause is over. It does nothing without one.
func (p *parking) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.spots[id]; s != nil {
		p.past[id] += time.Since(s.since)
		delete(p.spots, id)
		close(s.over)
	}
}

// forget drops all that is known of a sandbox that has ended.
func (p *parking) forget(id string) {
	p.leave(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.past, id)
	delete(p.cuts, id)
}

// cut notes why the processes of a sandbox end that is up again in a moment.
func (p *parking) cut(id, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cuts == nil {
		p.cuts = map[string]string{}
	}
	p.cuts[id] = why
}

// lost is the error for a process that its guest does not know any more.
func (p *parking) lost(id string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.cuts[id]; why != "" {
		return fault.Wrap(err, fault.State, "it ended: %s", why).About("sandbox")
	}
	return err
}

// at returns the present pause of a sandbox, nil when there is none.
func (p *parking) at(id string) *spot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spots[id]
}

// total is how long the pauses of a sandbox that are over took.
func (p *parking) total(id string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.past[id]
}

// wait returns when a sandbox is not paused, at once when it is not. It is an
// error to wait for processes that do not come back.
func (p *parking) wait(ctx context.Context, id string) error {
	for s := p.at(id); s != nil; s = p.at(id) {
		if !s.memory {
			return wasPaused(id)
		}
		select {
		case <-s.over:
		case <-ctx.Done():
			return fault.From(ctx.Err())
		}
	}
	return nil
}

// wasPaused is what becomes of a session when its sandbox is paused.
func wasPaused(id string) error {
	return fault.New(fault.State, "the sandbox was paused; use it again to resume it").About("sandbox")
}

// after calls f when the process has had d of a time in which its sandbox was
// not paused. stop calls it off.
func (p *process) after(d time.Duration, f func()) (stop func()) {
	parked, id := &p.e.parked, p.sandboxID
	ctx, cancel := context.WithCancel(context.Background())
	before := parked.total(id)
	p.e.background(func(engine context.Context) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			case <-engine.Done():
				return
			}
			if s := parked.at(id); s != nil {
				select {
				case <-s.over:
				case <-ctx.Done():
					return
				case <-engine.Done():
					return
				}
			}
			paused := parked.total(id)
			if paused <= before {
				f()
				return
			}
			timer.Reset(paused - before)
			before = paused
		}
	})
	return cancel
}

// pausedSince is how long a sandbox was paused since a time, by its events.
func (e *Engine) pausedSince(ctx context.Context, id string, since time.Time) (time.Duration, error) {
	var sum time.Duration
	var began time.Time
	count := func(end time.Time) {
		if began.Before(since) {
			began = since
		}
		sum += max(end.Sub(began), 0)
		began = time.Time{}
	}
	var seq int64
	for {
		page, err := e.cfg.Store.Events(ctx, id, seq, 1000)
		if err != nil {
			return 0, err
		}
		for _, ev := range page {
			seq = ev.Seq
			switch {
			case ev.Type == EventPause:
				began = ev.At
			case ev.Type == EventResume && !began.IsZero():
				count(ev.At)
			}
		}
		if len(page) < 1000 {
			break
		}
	}
	if !began.IsZero() {
		count(e.cfg.Now())
	}
	return sum, nil
}
