package sandbox

import (
	"context"
	"sync"
	"time"
)

// countdown stops a command whose time is up. It stands still while the command
// is paused with its sandbox. The nil countdown never stops anything.
type countdown struct {
	mu    sync.Mutex
	left  time.Duration
	since time.Time // when it was set going; zero while it stands still
	timer *time.Timer
	fire  func()
}

func newCountdown(left time.Duration, fire func()) *countdown {
	c := &countdown{left: left, fire: fire}
	c.goOn()
	return c
}

// goOn sets it going, if it stands still.
func (c *countdown) goOn() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = time.Now()
		c.timer = time.AfterFunc(c.left, c.fire)
	}
}

// hold makes it stand still.
func (c *countdown) hold() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() && c.timer.Stop() {
		c.left -= time.Since(c.since)
		c.since = time.Time{}
	}
}

// stop calls it off.
func (c *countdown) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
}

// pausedSince is how long a sandbox was paused since a time, by its events.
func (e *Engine) pausedSince(ctx context.Context, id string, since time.Time) (time.Duration, error) {
	events, err := e.cfg.Store.EventHistory(ctx, EventFilter{SandboxID: id, Types: []EventType{EventPause, EventResume}, Since: since, Asc: true})
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	var began time.Time
	for _, ev := range events {
		switch {
		case ev.Type == EventPause:
			began = ev.At
		case !began.IsZero():
			sum, began = sum+ev.At.Sub(began), time.Time{}
		}
	}
	if !began.IsZero() {
		sum += e.cfg.Now().Sub(began)
	}
	return sum, nil
}
