package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// reader delivers events to one subscriber, at its pace.
type reader struct {
	e       *Engine
	sub     *subscriber
	out     chan Notice
	last    int64       // place of the newest event delivered
	missed  int         // not yet told of
	seen    *Visibility // of all sandboxes; nil: those of its owner, or an admin's all
	checked time.Time
	current bool // it has been up to date once
}

// read delivers until ctx ends, or the subscriber may not see it any more.
func (r *reader) read(ctx context.Context) error {
	tick := time.NewTicker(recheckTime)
	defer tick.Stop()
	for {
		batch, behind, at := r.e.hub.take(r.sub)
		if err := r.deliver(ctx, batch); err != nil {
			return err
		}
		switch {
		case behind:
			if err := r.fromStore(ctx, at); err != nil {
				return err
			}
			continue
		case len(batch) > 0:
			continue
		}
		select {
		case <-r.sub.wake:
		case <-tick.C:
			if err := r.recheck(ctx, true); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fromStore delivers what the hub did not queue, and what came before the
// subscription. at is how far the hub is.
func (r *reader) fromStore(ctx context.Context, at int64) error {
	f := EventFilter{SandboxID: r.sub.sandboxID, Asc: true, Limit: eventPage}
	if r.sub.sandboxID == "" {
		if f.Seen = r.seen; f.Seen == nil && !r.sub.who.IsAdmin() {
			f.Owner = r.sub.who.ID
		}
	}
	if r.current && f.SandboxID == "" && at-r.last > subscriberLag {
		skipped := f
		skipped.After, skipped.Before = r.last, at+1
		n, err := r.e.cfg.Store.EventCount(ctx, skipped)
		if err != nil {
			return r.patience(ctx, err)
		}
		skipped.Asc = false // the newest are the present
		present, err := r.e.cfg.Store.EventHistory(ctx, skipped)
		if err != nil {
			return r.patience(ctx, err)
		}
		if n > subscriberLag && len(present) > 0 {
			r.missed += n - len(present)
			r.last = present[len(present)-1].Position - 1
		}
	}
	// From here on the hub queues again. It may queue what the store shows
	// here already, which deliver notices; it cannot leave anything out.
	r.e.hub.catchUp(r.sub)
	for {
		f.After = r.last
		page, err := r.e.cfg.Store.EventHistory(ctx, f)
		if err != nil {
			if err = r.patience(ctx, err); err != nil {
				return err
			}
			continue
		}
		if err := r.deliver(ctx, page); err != nil {
			return err
		}
		if len(page) < eventPage {
			r.current = true
			return nil
		}
	}
}

// deliver gives events to the subscriber, each once and in order.
func (r *reader) deliver(ctx context.Context, events []Event) error {
	if len(events) == 0 {
		return ctx.Err()
	}
	if err := r.recheck(ctx, false); err != nil {
		return err
	}
	for _, ev := range events {
		if place := r.sub.place(&ev); place <= r.last {
			continue
		}
		seen, err := r.sees(ctx, &ev)
		if err != nil {
			return err
		}
		if !seen {
			r.last = r.sub.place(&ev)
			continue
		}
		select {
		case r.out <- Notice{Event: ev, Missed: r.missed}:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.last, r.missed = r.sub.place(&ev), 0
	}
	return nil
}

// sees reports whether the subscriber may see the sandbox of an event, where
// that is not known from its owner alone.
func (r *reader) sees(ctx context.Context, ev *Event) (bool, error) {
	if r.seen == nil {
		return true, nil
	}
	for {
		s, err := r.e.cfg.Store.Sandbox(ctx, ev.SandboxID)
		if err == nil {
			return r.seen.Sees(s.ID, s.Name, s.Owner, s.Project), nil
		}
		if fault.Is(err, fault.NotFound) {
			return false, nil
		}
		if err := r.patience(ctx, err); err != nil {
			return false, err
		}
	}
}

// recheck ends the subscription of who may not have it any more: the key is
// gone, or the sandbox is somebody else's. A store that does not answer is no
// reason.
func (r *reader) recheck(ctx context.Context, now bool) error {
	at := r.e.cfg.Now()
	if !now && at.Sub(r.checked) < recheckTime {
		return nil
	}
	r.checked = at
	err := r.e.Recheck(ctx, r.sub.who)
	if err == nil && r.seen != nil {
		// Somebody may have joined a project, or left one.
		var v *Visibility
		if _, v, err = r.e.As(r.sub.who).seen(ctx); err == nil && v != nil {
			r.seen = v
		}
	}
	if err == nil && r.sub.sandboxID != "" {
		_, err = r.e.As(r.sub.who).resolve(ctx, r.sub.sandboxID, "Subscribe")
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return err
	}
	return ctx.Err()
}

// patience waits a moment before the store is asked again.
func (r *reader) patience(ctx context.Context, err error) error {
	r.e.cfg.Log.Warn("read events for a subscriber", "user", r.sub.who.ID, "err", err)
	select {
	case <-time.After(hubRetry):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
