package agent

import (
	"cmp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// claim takes an id for a process that is about to be started.
func (a *Agent) claim(p *process) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, taken := a.procs[p.id]; taken && old.running {
		// A host that has seen the exit may use the id again at once; its
		// word that it has may be a moment behind.
		a.mu.Unlock()
		settled := old.settle()
		a.mu.Lock()
		if settled && a.procs[p.id] == old {
			delete(a.procs, p.id)
		}
	}
	if a.closed {
		return fault.New(fault.State, "the sandbox is shutting down")
	}
	if _, taken := a.procs[p.id]; taken {
		return fault.New(fault.Exists, "a process with the id %q exists", p.id).About("execution")
	}
	if len(a.procs) >= wire.MaxProcess {
		return fault.New(fault.Exhausted, "the sandbox keeps %d processes already; end some of them", wire.MaxProcess)
	}
	a.procs[p.id] = p
	return nil
}

// settleTime bounds settle.
const settleTime = 200 * time.Millisecond

// settle waits, if the process has ended, until its attachments have gone, and
// reports whether somebody has taken over its exit.
func (p *process) settle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := false
	timer := time.AfterFunc(settleTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		over = true
		p.changed.Broadcast()
	})
	defer timer.Stop()
	for p.ended && len(p.attached) > 0 && !over {
		p.changed.Wait()
	}
	return p.collected && !p.keep && len(p.attached) == 0
}

// forget ends the keeping of a process that has ended. Whoever is still
// attached is the one who has collected its exit and is about to leave.
func (p *process) forget() error {
	p.mu.Lock()
	if !p.ended {
		p.mu.Unlock()
		return fault.New(fault.State, "process %q has not ended", p.id)
	}
	p.keep, p.collected = false, true
	alone := len(p.attached) == 0
	p.mu.Unlock()
	if alone {
		p.agent.drop(p)
	}
	return nil
}

// drop forgets a process.
func (a *Agent) drop(p *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.procs[p.id] == p {
		delete(a.procs, p.id)
	}
}

func (a *Agent) find(id string) (*process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.procs[id]
	if p == nil || !p.running {
		return nil, fault.New(fault.NotFound, "there is no process %q in the sandbox", wire.Printable(id, wire.MaxID)).About("execution")
	}
	return p, nil
}

// all returns the processes that have been started, oldest first.
func (a *Agent) all() []*process {
	a.mu.Lock()
	defer a.mu.Unlock()
	var procs []*process
	for _, p := range a.procs {
		if p.running {
			procs = append(procs, p)
		}
	}
	slices.SortFunc(procs, func(x, y *process) int {
		return cmp.Or(x.started.Compare(y.started), cmp.Compare(x.id, y.id))
	})
	return procs
}

func (a *Agent) list() []guest.Info {
	infos := []guest.Info{}
	for _, p := range a.all() {
		infos = append(infos, p.info())
	}
	return infos
}

// quietTime is how long nothing large has moved when memory is given back.
const quietTime = 3 * time.Second

// moved notes that much data moves. PID 1 gives the memory that took back to
// the system when that is over: it lives in its user's memory limit.
func (a *Agent) moved(n int) {
	if n < bulk || !a.cfg.Reap {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quiet == nil {
		a.quiet = time.AfterFunc(quietTime, debug.FreeOSMemory)
	} else {
		a.quiet.Reset(quietTime)
	}
}

// ownsNow reports whether the number belongs to a process of ours other than
// the one named.
func (a *Agent) ownsNow(pid int, but *process) bool {
	return slices.ContainsFunc(a.all(), func(p *process) bool { return p != but && p.pid == pid })
}

// finished is a process that has ended and is still kept.
type finished struct {
	p  *process
	at time.Time
}

// sweepNow drops finished processes that nobody collected, or forgot where they
// are to be kept: those kept for too long, and the oldest of too many. It sets a
// timer for the next one to go.
func (a *Agent) sweepNow() {
	var uncollected, unforgotten []finished
	for _, p := range a.all() {
		p.mu.Lock()
		switch {
		case !p.ended || len(p.attached) > 0:
		case p.keep:
			unforgotten = append(unforgotten, finished{p, p.endedAt})
		default:
			uncollected = append(uncollected, finished{p, p.endedAt})
		}
		p.mu.Unlock()
	}
	next, more := a.dropOld(uncollected, a.cfg.KeepFinished, a.cfg.KeepTime)
	if later, also := a.dropOld(unforgotten, a.cfg.KeepUnforgotten, a.cfg.KeepUnforgottenTime); also && (!more || later < next) {
		next, more = later, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sweep != nil {
		a.sweep.Stop()
		a.sweep = nil
	}
	if more && !a.closed {
		a.sweep = time.AfterFunc(max(next, time.Second), a.sweepNow)
	}
}

// dropOld drops all but count of the processes and those that ended longer ago
// than keep, and tells in how long the next one has to go, if one is left.
func (a *Agent) dropOld(list []finished, count int, keep time.Duration) (next time.Duration, more bool) {
	slices.SortFunc(list, func(x, y finished) int { return x.at.Compare(y.at) })
	oldest := a.cfg.Now().Add(-keep)
	for len(list) > 0 && (len(list) > count || !list[0].at.After(oldest)) {
		a.drop(list[0].p)
		list = list[1:]
	}
	if len(list) == 0 {
		return 0, false
	}
	return list[0].at.Sub(oldest), true
}
