package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// watchOOM ends sandboxes in which the kernel killed a process for want of
// memory, until ctx ends. The engine keeps its latest events, so that those of
// the time when nobody listened are seen too.
func (d *Driver) watchOOM(ctx context.Context) {
	var since int64 // Unix time of the latest event; those of its second come twice
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		events := d.cli.Events(ctx, client.EventsListOptions{
			Since:   strconv.FormatInt(since, 10),
			Filters: d.owned("").Add("type", "container").Add("event", "oom"),
		})
		for open := true; open; {
			select {
			case e := <-events.Messages:
				pause = 100 * time.Millisecond
				since = max(since, e.Time)
				if id := e.Actor.Attributes[labelID]; driver.ValidID(id) {
					d.endOOM(ctx, id, time.Unix(0, e.TimeNano))
				}
			case err := <-events.Err:
				open = false
				if ctx.Err() == nil {
					d.log.Debug("the engine's events have ended", "error", err)
				}
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// endOOM kills a sandbox, unless the event belongs to an earlier life of it.
func (d *Driver) endOOM(ctx context.Context, id string, at time.Time) {
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return // the driver is closed; the next one reads the event again
	}
	defer unlock()
	c, err := d.inspect(ctx, id)
	if err != nil || c.state() != driver.Running {
		return
	}
	started, err := time.Parse(time.RFC3339Nano, c.State.StartedAt)
	if err != nil || at.Before(started) {
		return
	}
	d.log.Warn("a sandbox exceeded its memory limit and is ended", "sandbox", id)
	if err := d.kill(ctx, id); err != nil {
		d.log.Error("a sandbox that exceeded its memory limit cannot be ended", "sandbox", id, "error", err)
	}
}
