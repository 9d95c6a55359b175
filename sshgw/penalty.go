package sshgw

import (
	"net"
	"time"
)

// Penalties turn an address away that keeps failing to get in, as sshd's
// PerSourcePenalties do: each failure adds to the time, and nothing happens
// before it adds up to leastPenalty. They slow down whoever tries keys, and
// whoever keeps the gateway busy with handshakes.
//
// Behind one address there may be many people. So the time is bounded by
// Limits.PenaltyMax, and by leastPenalty for an address from which somebody has
// logged in lately; and a login takes the penalty away. Connections that are
// open already are left alone.

// fault of a connection that ended without a login.
type failure int

const (
	noFailure    failure = iota
	failedKeys           // every key it offered was refused
	failedSilent         // it offered none
	failedLate           // it took all the time there is, or had to make room
	failedFlood          // it sent more than a login takes
)

const (
	leastPenalty = 15 * time.Second
	// familiar is for how long a login speaks for its address.
	familiar = time.Hour
	// maxPenalties bounds the addresses that are remembered for their failures.
	maxPenalties = 1 << 16
)

// cost is what a failure adds.
func (f failure) cost() time.Duration {
	switch f {
	case failedKeys:
		return 5 * time.Second
	case failedSilent:
		return time.Second
	case failedLate:
		return 10 * time.Second
	case failedFlood:
		return 90 * time.Second
	}
	return 0
}

// penalty is what an address has to bear.
type penalty struct {
	until   time.Time // the failures add up to this
	shut    time.Time // turned away until then
	welcome time.Time // somebody has logged in from there
}

// matters reports whether it has to be remembered.
func (p *penalty) matters(now time.Time) bool {
	return now.Before(p.until) || now.Before(p.shut) || now.Sub(p.welcome) < familiar
}

// punish adds the cost of a failure.
func (p *penalty) punish(f failure, most time.Duration, now time.Time) {
	if now.Sub(p.welcome) < familiar {
		most = min(most, leastPenalty)
	}
	if p.until.Before(now) {
		p.until = now
	}
	if p.until = p.until.Add(f.cost()); p.until.Sub(now) > most {
		p.until = now.Add(most)
	}
	if p.until.Sub(now) >= min(most, leastPenalty) {
		p.shut = p.until
	}
}

// failed notes how a connection ended that did not get in.
func (g *gate) failed(addr net.Addr, f failure) {
	prefix := sourceOf(addr)
	if f == noFailure || g.limits.PenaltyMax < 0 || g.free(prefix) {
		return
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sources) >= maxPenalties && g.sources[prefix] == nil {
		return // a flood from everywhere is not held back by remembering it
	}
	g.source(prefix, now).punish(f, g.limits.PenaltyMax, now)
}

// welcome notes that somebody has logged in from an address.
func (g *gate) welcome(addr net.Addr) {
	prefix := sourceOf(addr)
	if g.free(prefix) {
		return
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.source(prefix, now).penalty = penalty{welcome: now}
}
