package sandbox

import (
	"context"
	"sync"
	"time"
)

// attendance knows which commands somebody has to attend, and cancels one that
// nobody does any more: its caller is gone. A caller attends by waiting for the
// end, following the output or feeding the input. The zero value is ready.
type attendance struct {
	mu    sync.Mutex
	posts map[string]*post // by execution
}

type post struct {
	held  int
	grace time.Duration
	timer *time.Timer
}

// demand has a command cancelled when nobody has attended it for grace.
func (a *attendance) demand(id string, grace time.Duration, cancel func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.posts == nil {
		a.posts = map[string]*post{}
	}
	a.posts[id] = &post{grace: grace, timer: time.AfterFunc(grace, cancel)}
}

// attend notes that somebody is there until leave is called.
func (a *attendance) attend(id string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.posts[id]
	if p == nil {
		return func() {}
	}
	p.held++
	p.timer.Stop()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.held--; p.held == 0 && a.posts[id] == p {
			p.timer.Reset(p.grace)
		}
	}
}

// end forgets a command that has ended.
func (a *attendance) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.posts[id]; p != nil {
		p.timer.Stop()
		delete(a.posts, id)
	}
}

// attended has a command cancelled once its caller is gone.
func (e *Engine) attended(id string) {
	run := e.running(id)
	if run == nil {
		return // it has ended already
	}
	e.attendance.demand(id, e.cfg.AttendGrace, func() {
		e.cfg.Log.Info("nobody attends a command any more", "execution", id, "sandbox", run.sandboxID)
		run.stop(errStopped)
	})
	e.background(func(ctx context.Context) {
		select {
		case <-run.done:
		case <-ctx.Done():
		}
		e.attendance.end(id)
	})
}
