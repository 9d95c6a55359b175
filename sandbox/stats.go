package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Usage is what a sandbox uses now, and has used since it was made.
func (a *Actor) Usage(ctx context.Context, ref string) (Usage, error) {
	s, err := a.resolve(ctx, ref, "Usage")
	if err != nil {
		return Usage{}, err
	}
	if s.Status.Up() {
		if err := a.e.mine(&s); err != nil {
			return Usage{}, err
		}
		soon, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		u, err := a.e.sample(soon, &s)
		if err != nil && soon.Err() != nil && ctx.Err() == nil {
			return u, fault.Wrap(err, fault.Unavailable, "sandbox %s does not answer; try again", s.ID).About("sandbox")
		}
		if err == nil || !fault.Is(err, fault.State) && !fault.Is(err, fault.NotFound) {
			return u, err
		} // it stopped just now
	}
	a.e.saveSamples(ctx)
	u, err := a.e.lastUsage(ctx, &s)
	u.At, u.MemoryBytes, u.Processes, u.Limits = a.e.cfg.Now(), 0, 0, s.Limits
	if !s.Status.Live() {
		u.DiskBytes = 0
	}
	return u, err
}

// Stats sums up what the actor may see.
func (a *Actor) Stats(ctx context.Context, org string, start, end time.Time) (Stats, error) {
	if err := a.allow("Stats"); err != nil {
		return Stats{}, err
	}
	if a.who.Scope.Fenced() {
		return Stats{}, fault.New(fault.Denied, "the key %s is for certain sandboxes alone (%s) and has no statistics of all; ask for the use of one sandbox", a.keyName(), a.who.Scope).About("key")
	}
	if org != "" && !projectRule.MatchString(org) {
		return Stats{}, fault.InvalidField("org", "%q is not an id: use 1 to 64 letters, digits, dots, hyphens and underscores", clip(org, 64))
	}
	if end.IsZero() {
		end = a.e.cfg.Now()
	}
	if end.Before(start) {
		return Stats{}, fault.InvalidField("end", "lies before the start")
	}
	owner := ""
	if !a.who.IsAdmin() {
		if owner = a.who.ID; owner == "" {
			return Stats{Start: start, End: end, ByStatus: map[Status]int{}}, nil
		}
	}
	a.e.saveSamples(ctx)
	return a.e.cfg.Store.Stats(ctx, owner, org, start, end)
}

// sample reads what a sandbox that is up uses, and notes it.
func (e *Engine) sample(ctx context.Context, s *Sandbox) (Usage, error) {
	d, ok := e.cfg.Driver.(driver.Stats)
	if !ok {
		return Usage{}, fault.New(fault.Unsupported, "the %s engine does not tell what a sandbox uses", e.caps.Driver).About("sandbox")
	}
	if _, err := e.lastUsage(ctx, s); err != nil {
		return Usage{}, err
	}
	now, err := d.Usage(ctx, s.ID)
	if err != nil {
		return Usage{}, err
	}
	seen := Usage{
		SandboxID: s.ID, MemoryBytes: now.MemoryBytes, DiskBytes: now.DiskBytes, Processes: now.Processes, Limits: s.Limits,
		Raw: Counters{CPU: now.CPU},
	}
	if s.Network != nil && e.cfg.Egress != nil {
		if seen.Raw.NetIn, seen.Raw.NetOut, err = e.cfg.Egress.Traffic(ctx, s.ID); err != nil {
			return Usage{}, err
		}
	}
	return e.meters.count(seen, e.cfg.Now), nil
}

// lastUsage is the last that is known of the use of a sandbox.
func (e *Engine) lastUsage(ctx context.Context, s *Sandbox) (Usage, error) {
	if u, ok := e.meters.last(s.ID); ok {
		return u, nil
	}
	u, err := e.cfg.Store.LastUsage(ctx, s.ID)
	if fault.Is(err, fault.NotFound) {
		u, err = Usage{SandboxID: s.ID, At: s.CreatedAt, DiskBytes: -1}, nil
	}
	if err == nil && s.Status.Live() {
		u = e.meters.begin(u)
	}
	return u, err
}

// lastSample takes a sample of a sandbox that is about to stop: what it used
// since the one before would be forgotten.
func (e *Engine) lastSample(ctx context.Context, s *Sandbox) {
	if !s.Status.Up() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastSampleTime)
	defer cancel()
	if _, err := e.sample(ctx, s); err != nil {
		e.cfg.Log.Debug("sample a sandbox that stops", "sandbox", s.ID, "err", err)
	}
}
