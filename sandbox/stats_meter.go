package sandbox

import (
	"context"
	"sync"
	"time"
)

// When samples are taken, how long one may take (somebody waits for the one
// that is asked for and for the last one), and what is kept of them: all for an
// hour, one of five minutes for a month.
const (
	sampleEvery    = 15 * time.Second
	sampleTime     = 5 * time.Second
	askTime        = 2 * time.Second
	lastSampleTime = 500 * time.Millisecond
	samplers       = 8
	keepAll        = time.Hour
	keepStep       = 5 * time.Minute
	keepSamples    = 30 * 24 * time.Hour
)

// meters count the use of sandboxes on, over any number of starts. The zero
// value is ready.
type meters struct {
	mu      sync.Mutex
	meters  map[string]*meter
	pending []Usage // samples that are in no record yet
}

type meter struct {
	usage Usage     // the last sample
	from  time.Time // up to here its time was counted
}

// begin takes up counting where the records end, unless that has been done.
func (m *meters) begin(u Usage) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meters == nil {
		m.meters = map[string]*meter{}
	}
	if m.meters[u.SandboxID] == nil {
		m.meters[u.SandboxID] = &meter{usage: u, from: u.At}
	}
	return m.meters[u.SandboxID].usage
}

func (m *meters) last(id string) (Usage, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.meters[id]; t != nil {
		return t.usage, true
	}
	return Usage{}, false
}

// restarted notes that a sandbox has started again: its counters begin anew,
// and the time it was down does not count.
func (m *meters) restarted(id string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.meters[id]; t != nil {
		t.usage.Raw, t.from = Counters{NetIn: t.usage.Raw.NetIn, NetOut: t.usage.Raw.NetOut}, now
	}
}

func (m *meters) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.meters, id)
}

// count adds what was seen to the totals and returns it with them.
func (m *meters) count(seen Usage, clock func() time.Time) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.meters[seen.SandboxID]
	if t == nil { // it ended meanwhile
		seen.At = clock()
		return seen
	}
	last := t.usage
	seen.At = clock()
	up := max(seen.At.Sub(t.from), 0)
	seen.CPU = last.CPU + time.Duration(grown(int64(last.Raw.CPU), int64(seen.Raw.CPU)))
	seen.NetIn = last.NetIn + grown(last.Raw.NetIn, seen.Raw.NetIn)
	seen.NetOut = last.NetOut + grown(last.Raw.NetOut, seen.Raw.NetOut)
	seen.Uptime = last.Uptime + up
	seen.MemorySecond = last.MemorySecond + float64(seen.MemoryBytes)*up.Seconds()
	if seen.DiskBytes < 0 {
		seen.DiskBytes = last.DiskBytes
	}
	t.usage, t.from = seen, seen.At
	m.pending = append(m.pending, seen)
	return seen
}

// grown is by how much a counter has grown that begins at zero now and then.
func grown(before, now int64) int64 {
	if now < before {
		return now
	}
	return now - before
}

// Sample notes what every sandbox that is up uses. Run does so every few
// seconds.
func (e *Engine) Sample(ctx context.Context) {
	up, _, err := e.cfg.Store.Sandboxes(ctx, SandboxFilter{Statuses: []Status{Idle, Running}})
	if err != nil {
		e.cfg.Log.Warn("list sandboxes to sample", "err", err)
		return
	}
	turn := make(chan struct{}, samplers)
	var all sync.WaitGroup
	for _, s := range up {
		if s.Driver != e.cfg.Driver.Name() {
			continue
		}
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, sampleTime)
			defer cancel()
			if _, err := e.sample(ctx, &s); err != nil && ctx.Err() == nil {
				e.cfg.Log.Debug("sample sandbox", "sandbox", s.ID, "err", err)
			}
		})
	}
	all.Wait()
	e.saveSamples(ctx)
}

// saveSamples writes the samples that were taken. Where that fails they are
// dropped: the next ones have their sums.
func (e *Engine) saveSamples(ctx context.Context) {
	e.meters.mu.Lock()
	pending := e.meters.pending
	e.meters.pending = nil
	e.meters.mu.Unlock()
	if err := e.cfg.Store.AddUsage(ctx, pending); err != nil {
		e.cfg.Log.Warn("record samples of use", "samples", len(pending), "err", err)
	}
}

// trimSamples drops samples that are older than anybody asks for.
func (e *Engine) trimSamples(ctx context.Context) {
	now := e.cfg.Now()
	err := e.cfg.Store.TrimUsage(ctx, now.Add(-keepSamples))
	if err == nil {
		err = e.cfg.Store.ThinUsage(ctx, now.Add(-keepSamples), now.Add(-keepAll), keepStep)
	}
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("drop old samples of use", "err", err)
	}
}
