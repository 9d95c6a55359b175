package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

const (
	// subscriberQueue is how many events wait in memory for one subscriber. One
	// that is slower gets the others from the store when it comes to them.
	subscriberQueue = 1024
	// subscriberLag is how far behind a subscriber to all sandboxes may be
	// before it is told how much it missed and goes on with the present.
	subscriberLag = 4_000
	// eventPage is how many events are read from the store at once.
	eventPage = 256
	// recheckTime is how long a subscription goes on without asking whether
	// the subscriber still may see what it tells.
	recheckTime = 10 * time.Second
	// hubRetry is how soon the store is asked again after an error.
	hubRetry = time.Second
)

// hub hands events out as they are committed. One goroutine reads them from the
// store in the order of their positions, so that nobody sees one before the one
// before it, and gives them to the subscribers; it never waits for any.
type hub struct {
	e *Engine

	mu   sync.Mutex
	at   int64 // position up to which events have been handed out
	subs map[*subscriber]struct{}
	stop context.CancelFunc // of the goroutine; nil while there is none
}

// subscriber is one reader. The hub's lock guards queue, behind and live.
type subscriber struct {
	who       keys.Principal
	sandboxID string // empty: of all it may see
	broad     bool   // which of them is for the reader to find out
	wake      chan struct{}

	queue  []Event
	behind bool // events were not queued; they are in the store
}

func newHub(e *Engine) *hub { return &hub{e: e, subs: map[*subscriber]struct{}{}} }

// place is the number that orders the events a subscriber gets.
func (s *subscriber) place(ev *Event) int64 {
	if s.sandboxID != "" {
		return ev.Seq
	}
	return ev.Position
}

func (s *subscriber) wants(ev *Event) bool {
	return (s.sandboxID == "" || s.sandboxID == ev.SandboxID) && (s.broad || s.sandboxID != "" || s.who.IsAdmin() || ev.Owner == s.who.ID)
}

// join adds a subscriber, which is behind until it says otherwise, and returns
// the position of the newest event.
func (h *hub) join(ctx context.Context, s *subscriber) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, err := h.e.cfg.Store.LastPosition(ctx)
	if err != nil {
		return 0, err
	}
	s.behind = true
	h.subs[s] = struct{}{}
	if h.stop == nil {
		run, stop := context.WithCancel(h.e.ctx)
		h.at, h.stop = last, stop
		h.e.background(func(context.Context) { h.run(run) })
	}
	return last, nil
}

func (h *hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	if len(h.subs) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// run hands out what is committed until ctx ends.
func (h *hub) run(ctx context.Context) {
	h.mu.Lock()
	at := h.at
	h.mu.Unlock()
	for ctx.Err() == nil {
		written := h.e.cfg.Store.Written()
		page, err := h.e.cfg.Store.EventHistory(ctx, EventFilter{After: at, Asc: true, Limit: eventPage})
		var retry <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			h.e.cfg.Log.Warn("read events for subscribers", "err", err)
			retry = time.After(hubRetry)
		case len(page) > 0:
			at = page[len(page)-1].Position
			h.give(ctx, page)
			continue
		}
		select {
		case <-written:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// give queues a page of events for those who want them.
func (h *hub) give(ctx context.Context, page []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return // another goroutine has the subscribers now
	}
	h.at = page[len(page)-1].Position
	for s := range h.subs {
		told := false
		for i := range page {
			if s.behind || !s.wants(&page[i]) {
				continue
			}
			told = true
			if s.behind = len(s.queue) >= subscriberQueue; !s.behind {
				s.queue = append(s.queue, page[i])
			}
		}
		if told {
			select {
			case s.wake <- struct{}{}:
			default: // it is awake
			}
		}
	}
}

// take returns what is queued, and whether, when that is nothing, the
// subscriber has to look into the store. at is how far the hub is.
func (h *hub) take(s *subscriber) (batch []Event, behind bool, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	batch, s.queue = s.queue, nil
	return batch, s.behind && len(batch) == 0, h.at
}

// catchUp makes the hub queue for the subscriber again. What the hub hands out
// from now on may be in the store already when the subscriber looks.
func (h *hub) catchUp(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.behind = false
}

// Subscribe follows the events of one sandbox, or of all the actor may see when
// ref is empty: those after a number (the Seq of one sandbox, the Position of
// all; 0 is from the first), or from now on when it is negative.
func (a *Actor) Subscribe(ctx context.Context, ref string, afterSeq int64) (*Subscription, error) {
	if a.who.ID == "" && !a.who.IsAdmin() {
		return nil, fault.New(fault.Denied, "events are told to a known principal only")
	}
	s := &subscriber{who: a.who, wake: make(chan struct{}, 1)}
	var seen *Visibility
	if ref != "" {
		sb, err := a.resolve(ctx, ref, "Subscribe")
		if err != nil {
			return nil, err
		}
		s.sandboxID = sb.ID
	} else {
		if err := a.allow("Subscribe"); err != nil {
			return nil, err
		}
		var err error
		if _, seen, err = a.seen(ctx); err != nil {
			return nil, err
		}
		s.broad = seen != nil
	}
	last, err := a.e.hub.join(ctx, s)
	if err != nil {
		return nil, err
	}
	if afterSeq < 0 {
		if afterSeq, err = a.e.lastPlace(ctx, s.sandboxID, last); err != nil {
			a.e.hub.leave(s)
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(a.e.ctx, cancel)
	r := &reader{e: a.e, sub: s, out: make(chan Notice), last: afterSeq, seen: seen, checked: a.e.cfg.Now()}
	a.e.background(func(context.Context) {
		defer close(r.out)
		defer cancel()
		defer unhook()
		defer a.e.hub.leave(s)
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			a.e.cfg.Log.Info("a subscription to events ended", "user", a.who.ID, "err", err)
		}
	})
	return &Subscription{events: r.out, stop: cancel}, nil
}

// lastPlace is where what happens from now on begins.
func (e *Engine) lastPlace(ctx context.Context, sandboxID string, position int64) (int64, error) {
	if sandboxID == "" {
		return position, nil
	}
	newest, err := e.cfg.Store.EventHistory(ctx, EventFilter{SandboxID: sandboxID, Limit: 1})
	if err != nil || len(newest) == 0 {
		return 0, err
	}
	return newest[0].Seq, nil
}
