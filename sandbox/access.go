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

// may reports whether the actor may see the sandbox: an admin, its owner, a
// member of its project, and each only within the scope of the key. What one
// may not see one does not use either; what one may do with what one sees is a
// matter of verbs, see needs.
func (a *Actor) may(ctx context.Context, s *Sandbox) (bool, error) {
	switch {
	case !a.within(s):
		return false, nil
	case a.who.IsAdmin():
		return true, nil
	case a.who.ID == "":
		return false, nil
	case s.Owner == a.who.ID:
		return true, nil
	}
	return a.e.isMember(ctx, ProjectGroup, s.Project, a.who.ID)
}

// noSandbox is the one answer for a sandbox that does not exist and for one
// the actor may not know about.
func noSandbox(ref string) error {
	return fault.New(fault.NotFound, "no sandbox %q; `list` shows yours", clip(ref, 64)).About("sandbox")
}

// resolve finds the sandbox a reference means, an id or a name, for an operation
// that the actor's key must be allowed to do.
func (a *Actor) resolve(ctx context.Context, ref string, op operation) (Sandbox, error) {
	s, err := a.find(ctx, ref)
	if err == nil {
		err = a.allow(op)
	}
	if err != nil {
		return Sandbox{}, err
	}
	return s, nil
}

// find finds a sandbox that the actor may see.
func (a *Actor) find(ctx context.Context, ref string) (Sandbox, error) {
	if IsID(ref) {
		s, err := a.e.cfg.Store.Sandbox(ctx, ref)
		if fault.Is(err, fault.NotFound) {
			return Sandbox{}, noSandbox(ref)
		}
		if err != nil {
			return Sandbox{}, err
		}
		err = a.visible(ctx, &s, noSandbox(ref))
		return s, err
	}
	if !nameRule.MatchString(ref) {
		return Sandbox{}, noSandbox(ref)
	}
	// A live sandbox first, then one that failed and still holds its name.
	for _, statuses := range [][]Status{{Creating, Idle, Running, Paused, Suspended, Stopping}, {Failed}} {
		s, err := a.named(ctx, ref, statuses)
		if err == nil {
			err = a.visible(ctx, &s, noSandbox(ref))
			return s, err
		}
		if !fault.Is(err, fault.NotFound) {
			return s, err
		}
	}
	return Sandbox{}, noSandbox(ref)
}

// visible returns missing for a sandbox that the actor may not see, and clears
// it.
func (a *Actor) visible(ctx context.Context, s *Sandbox, missing error) error {
	ok, err := a.may(ctx, s)
	if err == nil && !ok {
		err = missing
	}
	if err != nil {
		*s = Sandbox{}
	}
	return err
}

// inside checks an operation on something in a sandbox: missing is the error
// when the actor may not see the sandbox.
func (a *Actor) inside(ctx context.Context, sandboxID string, op operation, missing error) error {
	s, err := a.e.cfg.Store.Sandbox(ctx, sandboxID)
	if fault.Is(err, fault.NotFound) {
		return missing
	}
	if err == nil {
		err = a.visible(ctx, &s, missing)
	}
	if err == nil {
		err = a.allow(op)
	}
	return err
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
func (a *Actor) execution(ctx context.Context, id string, op operation) (Execution, error) {
	missing := fault.New(fault.NotFound, "no execution %q", clip(id, 64)).About("execution")
	x, err := a.e.cfg.Store.Execution(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return Execution{}, missing
	}
	if err != nil {
		return Execution{}, err
	}
	if err := a.inside(ctx, x.SandboxID, op, missing); err != nil {
		return Execution{}, err
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
func (a *Actor) ready(ctx context.Context, ref string, op operation) (Sandbox, error) {
	s, _, err := a.awake(ctx, ref, op, whyUsed)
	return s, err
}

// awake is ready, and tells whether it was this call that started the sandbox.
func (a *Actor) awake(ctx context.Context, ref string, op operation, why string) (s Sandbox, resumed bool, err error) {
	s, err = a.resolve(ctx, ref, op)
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
