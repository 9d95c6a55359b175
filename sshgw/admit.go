package sshgw

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// gate decides which new connections come near the key exchange, and holds
// those that are not authenticated yet.
type gate struct {
	limits Limits
	now    func() time.Time

	mu      sync.Mutex
	sources map[netip.Prefix]*source
	swept   time.Time // when those that say nothing were dropped last
	open    int       // half-open connections in all
}

// source is one address, or one /64 of IPv6.
type source struct {
	tokens float64
	filled time.Time // when tokens was brought up to date
	waits  []*waiting
	penalty
}

// waiting is one half-open connection.
type waiting struct {
	src   netip.Prefix
	evict func() // closes it; must not block
	since time.Time
}

func newGate(l Limits, now func() time.Time) *gate {
	return &gate{limits: l, now: now, sources: make(map[netip.Prefix]*source)}
}

// enter admits a connection, or returns nil for one that comes too soon after
// too many others, or from an address that has failed too often. evict is called, with no lock held, if a newer connection
// takes its place before leave is called. leave must be called with the result.
func (g *gate) enter(addr net.Addr, evict func()) *waiting {
	now, prefix := g.now(), sourceOf(addr)
	free := g.free(prefix)
	g.mu.Lock()
	s := g.source(prefix, now)
	if !free {
		if s.tokens < 1 || now.Before(s.shut) {
			g.mu.Unlock()
			return nil
		}
		s.tokens--
	}
	var victim *waiting
	switch {
	case !free && len(s.waits) >= g.limits.HalfOpenPerSource:
		victim = s.waits[0]
	case g.open >= g.limits.HalfOpen:
		victim = g.oldestOfBusiest()
	}
	if victim != nil {
		g.remove(victim)
	}
	w := &waiting{src: prefix, evict: evict, since: now}
	s.waits = append(s.waits, w)
	g.open++
	g.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return w
}

// leave takes a connection out: it is authenticated, or closed. Calling it
// again does nothing.
func (g *gate) leave(w *waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(w)
}

func (g *gate) remove(w *waiting) {
	s := g.sources[w.src]
	if s == nil {
		return
	}
	if i := slices.Index(s.waits, w); i >= 0 {
		s.waits = slices.Delete(s.waits, i, i+1)
		g.open--
	}
}

// oldestOfBusiest returns the oldest connection of the source that holds most.
func (g *gate) oldestOfBusiest() *waiting {
	var worst *source
	for _, s := range g.sources {
		if len(s.waits) > 0 && (worst == nil || len(s.waits) > len(worst.waits)) {
			worst = s
		}
	}
	if worst == nil {
		return nil
	}
	return worst.waits[0]
}

// free reports whether an address has no limits of its own: this host.
func (g *gate) free(p netip.Prefix) bool { return p.Addr().IsLoopback() && !g.limits.LimitLoopback }

// source returns the record of an address with its tokens up to date. Records
// that say nothing (no connection, bucket full again, no penalty) are dropped,
// so there are never many more than addresses seen within the last seconds.
func (g *gate) source(p netip.Prefix, now time.Time) *source {
	if s := g.sources[p]; s != nil {
		g.fill(s, now)
		return s
	}
	if len(g.sources) >= 1024 && now.Sub(g.swept) >= time.Second {
		g.swept = now
		for q, s := range g.sources {
			if g.fill(s, now); len(s.waits) == 0 && s.tokens >= float64(g.limits.Burst) && !s.matters(now) {
				delete(g.sources, q)
			}
		}
	}
	s := &source{tokens: float64(g.limits.Burst), filled: now}
	g.sources[p] = s
	return s
}

func (g *gate) fill(s *source, now time.Time) {
	if d := now.Sub(s.filled); d > 0 {
		s.tokens = min(float64(g.limits.Burst), s.tokens+d.Seconds()*g.limits.Rate)
		s.filled = now
	}
}

// sourceOf returns what counts as one address. Connections that are not IP
// count as one.
func sourceOf(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, ok := netip.AddrFromSlice(t.IP)
	if !ok {
		return netip.Prefix{}
	}
	ip = ip.Unmap()
	bits := 32
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	} else if ip.Is6() {
		bits = 128
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
