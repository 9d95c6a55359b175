package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Actor is a principal at work on the engine. All operations are its methods,
// and each asks first whether the principal may. See [Operations] for what
// they promise.
type Actor struct {
	e   *Engine
	who keys.Principal
}

var _ Operations = (*Actor)(nil)

// Principal returns who acts.
func (a *Actor) Principal() keys.Principal { return a.who }

// may reports whether the actor may see and use the sandbox. There is no
// difference between seeing and using yet: an owner may do all, others
// nothing, and what one may not use one does not see.
func (a *Actor) may(s *Sandbox) bool {
	return a.who.IsAdmin() || (a.who.ID != "" && s.Owner == a.who.ID)
}

// noSandbox is the one answer for a sandbox that does not exist and for one
// the actor may not know about.
func noSandbox(ref string) error {
	return fault.New(fault.NotFound, "no sandbox %q; `list` shows yours", clip(ref, 64)).About("sandbox")
}

// resolve finds the sandbox a reference means: an id, or a name.
func (a *Actor) resolve(ctx context.Context, ref string) (Sandbox, error) {
	if IsID(ref) {
		s, err := a.e.cfg.Store.Sandbox(ctx, ref)
		if fault.Is(err, fault.NotFound) || (err == nil && !a.may(&s)) {
			return Sandbox{}, noSandbox(ref)
		}
		return s, err
	}
	if !nameRule.MatchString(ref) {
		return Sandbox{}, noSandbox(ref)
	}
	// A live sandbox first, then one that failed and still holds its name.
	for _, statuses := range [][]Status{{Creating, Idle, Running, Paused, Suspended, Stopping}, {Failed}} {
		s, err := a.named(ctx, ref, statuses)
		if err == nil || !fault.Is(err, fault.NotFound) {
			return s, err
		}
	}
	return Sandbox{}, noSandbox(ref)
}

// named finds by name among the actor's own sandboxes. Nobody's names reach
// anybody else, an admin's eyes included: a name is chosen by its owner, and
// must not decide where somebody else's commands go.
func (a *Actor) named(ctx context.Context, name string, statuses []Status) (Sandbox, error) {
	if a.who.ID == "" {
		return Sandbox{}, noSandbox(name)
	}
	own, _, err := a.e.cfg.Store.Sandboxes(ctx, SandboxFilter{Owner: a.who.ID, Name: name, Statuses: statuses, Limit: 1})
	if err != nil {
		return Sandbox{}, err
	}
	if len(own) == 0 {
		return Sandbox{}, noSandbox(name)
	}
	return own[0], nil
}

// execution finds an execution in a sandbox the actor may use.
func (a *Actor) execution(ctx context.Context, id string) (Execution, error) {
	missing := fault.New(fault.NotFound, "no execution %q", clip(id, 64)).About("execution")
	x, err := a.e.cfg.Store.Execution(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return Execution{}, missing
	}
	if err != nil {
		return Execution{}, err
	}
	s, err := a.e.cfg.Store.Sandbox(ctx, x.SandboxID)
	if fault.Is(err, fault.NotFound) || (err == nil && !a.may(&s)) {
		return Execution{}, missing
	}
	a.e.mu.Lock()
	end := a.e.unsaved[id]
	a.e.mu.Unlock()
	if end != nil {
		end(&x)
	}
	return x, err
}

// ready returns the sandbox of ref when its guest can be talked to. It waits
// for one that is being created and starts one that is paused or that the
// system has stopped.
func (a *Actor) ready(ctx context.Context, ref string) (Sandbox, error) {
	s, _, err := a.awake(ctx, ref, whyUsed)
	return s, err
}

// awake is ready, and tells whether it was this call that started the sandbox.
func (a *Actor) awake(ctx context.Context, ref, why string) (s Sandbox, resumed bool, err error) {
	s, err = a.resolve(ctx, ref)
	if err != nil {
		return s, false, err
	}
	if s.Status.Live() {
		if err := a.e.mine(&s); err != nil {
			return s, false, err
		}
	}
	for s.Status == Creating {
		changed := a.e.pulse.next()
		if s, err = a.e.cfg.Store.Sandbox(ctx, s.ID); err != nil {
			return s, false, err
		}
		if s.Status != Creating {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, false, ctx.Err()
		}
	}
	switch {
	case s.Status == Suspended || s.Status == Paused:
		return a.e.wake(ctx, s.ID, a.who, why)
	case !s.Status.Up():
		return s, false, s.notUp()
	}
	return s, false, nil
}

// mine refuses a sandbox that another engine made on the same state folder.
func (e *Engine) mine(s *Sandbox) error {
	if d := e.cfg.Driver.Name(); s.Driver != d {
		return fault.New(fault.Unavailable, "sandbox %s belongs to the %s engine and this server runs %s; start it with --engine %s", s.ID, s.Driver, d, s.Driver).About("sandbox")
	}
	return nil
}
