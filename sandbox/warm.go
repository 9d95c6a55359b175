package sandbox

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Warm says how many sandboxes of a runtime are kept ready.
type Warm struct {
	Runtime string // name; empty: the default runtime
	Count   int
}

// warmPool keeps sandboxes ready that nobody has asked for yet: made, started,
// with their guest connected. Whoever creates one that is the same but for its
// name gets one of them, and does not wait for a boot.
//
// They have no record. A server that comes up removes what the last one had
// ready, as it does with every sandbox that no record knows.
type warmPool struct {
	mu     sync.Mutex
	ready  []warmBox
	taken  map[string]bool // by id: claimed, and not yet in use
	wanted chan struct{}   // has room for one: something was taken
	closed bool
}

type warmBox struct {
	id, runtime string
	spec        driver.Spec // see sameSpec
}

// warmCheck is how often the ready ones are looked at.
const warmCheck = 30 * time.Second

func newWarmPool() *warmPool {
	return &warmPool{taken: map[string]bool{}, wanted: make(chan struct{}, 1)}
}

// spec describes a sandbox to the driver.
func (e *Engine) spec(s *Sandbox, rootfs Rootfs) driver.Spec {
	host := s.Name
	if host == "" {
		host = strings.ReplaceAll(s.ID, "_", "-")
	}
	return driver.Spec{
		ID: s.ID, Hostname: host, Rootfs: rootfs, Guest: e.cfg.Guest, Network: s.Network != nil,
		Limits: s.Limits.forDriver(),
	}
}

// sameSpec takes out what may differ between a sandbox that is ready and the
// one that is asked for.
func sameSpec(s driver.Spec) driver.Spec {
	s.ID, s.Hostname = "", ""
	return s
}

// takeWarm returns the id of a ready sandbox that fits s. One with a name has
// that as its host name, which is set at boot, so none fits it.
func (e *Engine) takeWarm(s *Sandbox, rootfs Rootfs) (id string, ok bool) {
	if s.Name != "" || s.Network != nil {
		return "", false
	}
	want := sameSpec(e.spec(s, rootfs))
	p := e.warm
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.ready, func(b warmBox) bool { return reflect.DeepEqual(b.spec, want) })
	if i < 0 {
		return "", false
	}
	id = p.ready[i].id
	p.ready = slices.Delete(p.ready, i, i+1)
	p.taken[id] = true
	select {
	case p.wanted <- struct{}{}:
	default:
	}
	return id, true
}

// useWarm reports whether a sandbox with this id is there already, and answers.
// One that is there and does not answer is removed, so that it can be made.
func (e *Engine) useWarm(ctx context.Context, id string) bool {
	e.warm.mu.Lock()
	taken := e.warm.taken[id]
	delete(e.warm.taken, id)
	e.warm.mu.Unlock()
	if !taken {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := e.conns.get(ctx, id)
	if err == nil {
		err = conn.Ping(ctx)
	}
	if err == nil {
		return true
	}
	e.cfg.Log.Warn("a sandbox that was kept ready does not answer", "sandbox", id, "err", err)
	e.removeWarm(context.WithoutCancel(ctx), id)
	return false
}

func (e *Engine) removeWarm(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, e.cleanupTime())
	defer cancel()
	e.conns.drop(id)
	if err := e.cfg.Driver.Remove(ctx, id); err != nil {
		e.cfg.Log.Error("remove a sandbox that was kept ready", "sandbox", id, "err", err)
	}
}

// KeepWarm keeps sandboxes ready until ctx ends. Run does so.
func (e *Engine) KeepWarm(ctx context.Context) {
	if len(e.cfg.Warm) == 0 {
		return
	}
	tick := time.NewTicker(warmCheck)
	defer tick.Stop()
	for {
		for _, w := range e.cfg.Warm {
			if err := e.fillWarm(ctx, w); err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("keep sandboxes ready", "runtime", w.Runtime, "err", err, "cause", fault.From(err).Cause)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-e.warm.wanted:
		case <-tick.C:
			e.checkWarm(ctx)
		}
	}
}

// fillWarm makes what is missing, one after the other: who waits for a sandbox
// of their own comes first. What was made from files that the runtime has not
// any more is removed.
func (e *Engine) fillWarm(ctx context.Context, w Warm) error {
	name := w.Runtime
	if name == "" {
		name = e.cfg.DefaultRuntime
	}
	_, rootfs, err := e.cfg.Images.Provide(ctx, name, func(string) {})
	if err != nil {
		return err
	}
	s := Sandbox{Limits: Limits{}.withDefaults(e.cfg.DefaultLimits, e.caps)}
	for ctx.Err() == nil {
		s.ID = e.cfg.NewID(prefixSandbox)
		spec := e.spec(&s, rootfs)
		if e.countWarm(sameSpec(spec)) >= w.Count {
			return nil
		}
		e.dropStale(ctx, name, sameSpec(spec))
		if err := e.bootWarm(ctx, name, spec); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (e *Engine) countWarm(like driver.Spec) int {
	e.warm.mu.Lock()
	defer e.warm.mu.Unlock()
	n := 0
	for _, b := range e.warm.ready {
		if reflect.DeepEqual(b.spec, like) {
			n++
		}
	}
	return n
}

// dropStale removes those of a runtime that are not as they would be made now.
func (e *Engine) dropStale(ctx context.Context, runtime string, like driver.Spec) {
	e.warm.mu.Lock()
	all := slices.Clone(e.warm.ready)
	e.warm.mu.Unlock()
	for _, b := range all {
		if b.runtime == runtime && !reflect.DeepEqual(b.spec, like) && e.dropWarm(b.id) {
			e.removeWarm(ctx, b.id)
		}
	}
}

func (e *Engine) bootWarm(ctx context.Context, runtime string, spec driver.Spec) error {
	err := e.cfg.Driver.Create(ctx, spec)
	if err == nil {
		err = e.cfg.Driver.Start(ctx, spec.ID)
	}
	if err == nil {
		_, err = e.conns.get(ctx, spec.ID)
	}
	if err != nil {
		e.removeWarm(context.WithoutCancel(ctx), spec.ID)
		return err
	}
	p := e.warm
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.ready = append(p.ready, warmBox{spec.ID, runtime, sameSpec(spec)})
	}
	p.mu.Unlock()
	if closed {
		e.removeWarm(context.WithoutCancel(ctx), spec.ID)
	}
	return nil
}

// checkWarm removes those that have died.
func (e *Engine) checkWarm(ctx context.Context) {
	e.warm.mu.Lock()
	all := slices.Clone(e.warm.ready)
	e.warm.mu.Unlock()
	for _, b := range all {
		if st, err := e.cfg.Driver.Inspect(ctx, b.id); err == nil && st.State == driver.Running || ctx.Err() != nil {
			continue
		}
		if e.dropWarm(b.id) {
			e.removeWarm(ctx, b.id)
		}
	}
}

// dropWarm takes a sandbox out of the pool; false when it is not in it any more.
func (e *Engine) dropWarm(id string) bool {
	p := e.warm
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.ready)
	p.ready = slices.DeleteFunc(p.ready, func(b warmBox) bool { return b.id == id })
	return len(p.ready) < n
}

// closeWarm removes all that is ready.
func (e *Engine) closeWarm() {
	p := e.warm
	p.mu.Lock()
	all := p.ready
	p.ready, p.closed = nil, true
	p.mu.Unlock()
	for _, b := range all {
		e.removeWarm(context.Background(), b.id)
	}
}

// returnWarm removes a sandbox that was taken and will not be used.
func (e *Engine) returnWarm(id string) {
	e.warm.mu.Lock()
	taken := e.warm.taken[id]
	delete(e.warm.taken, id)
	e.warm.mu.Unlock()
	if taken {
		e.removeWarm(context.Background(), id)
	}
}
