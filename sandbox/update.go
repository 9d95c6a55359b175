package sandbox

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// SetEnv changes the variables that commands get from now on. The event names
// them and not their values, which may be secrets.
func (a *Actor) SetEnv(ctx context.Context, ref string, env map[string]*string) (map[string]string, error) {
	set := map[string]string{}
	for k, v := range env {
		set[k] = ""
		if v != nil {
			set[k] = *v
		}
	}
	if err := validateEnv(set); err != nil {
		return nil, err
	}
	s, err := a.resolve(ctx, ref, "SetEnv")
	if err != nil {
		return nil, err
	}
	s, err = a.e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		if err := s.changeable(); err != nil || len(env) == 0 {
			return nil, err
		}
		all := maps.Clone(s.Env)
		if all == nil {
			all = map[string]string{}
		}
		for k, v := range env {
			delete(all, k)
			if v != nil {
				all[k] = *v
			}
		}
		s.Env = all
		return []Event{a.e.event(s.ID, EventUpdate, a.who.ID, map[string]any{"env": slices.Sorted(maps.Keys(env))})}, validateEnv(all)
	})
	if err != nil {
		return nil, err
	}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	return s.Env, nil
}

// changeable says why a sandbox cannot be changed in its present state.
func (s *Sandbox) changeable() error {
	if s.Status.Live() && s.Status != Stopping {
		return nil
	}
	return fault.New(fault.State, "sandbox %s is %s and cannot be changed", s.ID, s.Status).About("sandbox")
}

// Update changes what can change while a sandbox lives: all of it or, when a
// part is refused, nothing.
func (a *Actor) Update(ctx context.Context, ref string, u UpdateRequest) (Sandbox, error) {
	if err := u.validate(a); err != nil {
		return Sandbox{}, err
	}
	s, err := a.resolve(ctx, ref, "Update")
	if err != nil {
		return s, err
	}
	if err := s.changeable(); err != nil {
		return s, err
	}
	if err := a.e.mine(&s); err != nil {
		return s, err
	}
	unlock, err := a.e.locks.lock(ctx, s.ID)
	if err != nil {
		return s, err
	}
	defer unlock()
	if s, err = a.e.cfg.Store.Sandbox(ctx, s.ID); err != nil {
		return s, err
	}
	if err := s.changeable(); err != nil {
		return s, err
	}
	return a.change(ctx, s, u)
}

// validate checks what can be checked without knowing the sandbox.
func (u *UpdateRequest) validate(a *Actor) error {
	if u.Name != nil && *u.Name != "" {
		if err := ValidateName(*u.Name); err != nil {
			return err
		}
	}
	if u.Description != nil && len(*u.Description) > maxDescription {
		return fault.InvalidField("description", "longer than %d bytes", maxDescription)
	}
	if u.Timeouts != nil {
		if err := u.Timeouts.validate(); err != nil {
			return err
		}
	}
	if u.Network != nil {
		if err := checkAllow(u.Network.Allow, a.who); err != nil {
			return err
		}
	}
	if u.Limits != nil {
		return validateLimits(*u.Limits, a.e.caps)
	}
	return nil
}

// change brings an update about: the driver first, then the network, then the
// record; where one refuses, those before it are taken back. The caller holds
// the sandbox's lock.
func (a *Actor) change(ctx context.Context, s Sandbox, u UpdateRequest) (Sandbox, error) {
	e := a.e
	undo := []func(context.Context) error{}
	back := func(err error) (Sandbox, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cleanupTime())
		defer cancel()
		for _, f := range slices.Backward(undo) {
			if uerr := f(ctx); uerr != nil {
				e.cfg.Log.Error("take a change back", "sandbox", s.ID, "err", uerr)
			}
		}
		return s, err
	}
	limits := s.Limits
	record := func(f func() error) error { return f() }
	if u.Limits != nil {
		limits = u.Limits.over(s.Limits)
	}
	if limits != s.Limits {
		c, err := e.claim(ctx, a.who, &s, s.grows(limits))
		if err != nil {
			return s, err
		}
		defer c.drop()
		record = func(f func() error) error { return c.settle(context.WithoutCancel(ctx), f) }
		if err := e.resize(ctx, s.ID, limits); err != nil {
			return s, err
		}
		undo = append(undo, func(ctx context.Context) error { return e.resize(ctx, s.ID, s.Limits) })
	}
	if u.Network != nil {
		if s.Network == nil {
			return back(fault.New(fault.State, "sandbox %s was made without network and cannot get one; make a new one", s.ID).About("sandbox"))
		}
		next := s
		next.Network = u.Network
		if err := e.allowNetwork(ctx, &next); err != nil {
			return back(err)
		}
		undo = append(undo, func(ctx context.Context) error { return e.allowNetwork(ctx, &s) })
	}
	var changed Sandbox
	err := record(func() (err error) {
		changed, err = e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
			data := u.apply(s, limits)
			if len(data) == 0 {
				return nil, nil
			}
			return []Event{e.event(s.ID, EventUpdate, a.who.ID, data)}, nil
		})
		return err
	})
	if err != nil {
		return back(err)
	}
	return changed, nil
}

// apply changes a record and returns what changed, for the event.
func (u *UpdateRequest) apply(s *Sandbox, limits Limits) map[string]any {
	data := map[string]any{}
	if u.Name != nil && *u.Name != s.Name {
		s.Name, data["name"] = *u.Name, *u.Name
	}
	if u.Description != nil && *u.Description != s.Description {
		s.Description, data["description"] = *u.Description, *u.Description
	}
	before := limitFields(&s.Limits)
	for i, f := range limitFields(&limits) {
		if *f.value != *before[i].value {
			data[f.name] = *f.value
		}
	}
	s.Limits = limits
	if u.Timeouts != nil && *u.Timeouts != s.Timeouts {
		t := *u.Timeouts
		s.Timeouts = t
		data["timeouts"] = map[string]string{"idle": FormatDuration(t.Idle), "execution": FormatDuration(t.Execution), "paused": FormatDuration(t.Paused)}
		if s.Status == Paused {
			s.setTerminatesAt()
		}
	}
	if u.Network != nil {
		s.Network, data["allow"] = u.Network, u.Network.Allow
	}
	return data
}

// over fills the fields that l leaves zero from the present limits.
func (l Limits) over(present Limits) Limits {
	from := limitFields(&present)
	for i, f := range limitFields(&l) {
		if *f.value == 0 {
			*f.value = *from[i].value
		}
	}
	return l
}

// grows is how much more of a quota a sandbox counts for with other limits.
func (s *Sandbox) grows(to Limits) Quota {
	q := Quota{DiskBytes: max(to.DiskBytes-s.Limits.DiskBytes, 0)}
	if s.Status != Paused && s.Status != Suspended {
		q.MemoryBytes, q.CPUMillis = max(to.MemoryBytes-s.Limits.MemoryBytes, 0), max(to.CPUMillis-s.Limits.CPUMillis, 0)
	}
	return q
}

// resize gives the driver's sandbox other limits.
func (e *Engine) resize(ctx context.Context, id string, l Limits) error {
	r, ok := e.cfg.Driver.(driver.Resizer)
	if support := e.caps.Support[driver.FeatureResize]; !ok || !support.OK {
		return fault.New(fault.Unsupported, "the limits of a sandbox cannot be changed here: %s", support.Reason).About("sandbox")
	}
	return r.Resize(ctx, id, l.forDriver())
}

func (l Limits) forDriver() driver.Limits {
	return driver.Limits{MemoryBytes: l.MemoryBytes, CPUMillis: l.CPUMillis, DiskBytes: l.DiskBytes, Processes: l.Processes}
}

// maxTimeout is so long that it is as good as none, and short enough to be
// added to any date.
const maxTimeout = 10 * 365 * 24 * time.Hour

func (t *Timeouts) validate() error {
	for field, d := range map[string]time.Duration{"timeout.idle": t.Idle, "timeout.execution": t.Execution, "timeout.paused": t.Paused} {
		if d > maxTimeout {
			return fault.InvalidField(field, "longer than ten years; use 0s for never")
		}
	}
	if t.Idle < 0 || t.Execution < 0 || t.Paused < 0 {
		return fault.InvalidField("timeout", "must not be negative")
	}
	return nil
}
