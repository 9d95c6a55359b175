package sandbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A quota bounds the sum of the limits of what somebody has live, not what is
// used of them. What is paused or suspended counts as a sandbox and with its
// disk; its memory and CPU are asked for again when it is resumed. A quota of
// memory, CPU or disk refuses a sandbox that is not limited itself. Members
// have the quota of members, admins none, and the sandboxes of an org the
// quota of an org, whoever made them.

// claims are the quotas that are just being asked for: nobody else is counted
// between the question and the record that is its answer. The zero value is
// ready.
type claims struct {
	turn keyedMutex

	mu   sync.Mutex
	open map[*claim]struct{}
}

// claim is room that was granted and is in no record yet.
type claim struct {
	e          *Engine
	owner, org string // empty where no quota holds
	want       Quota
	once       sync.Once
}

// asked is what a new sandbox with these limits counts for.
func (l Limits) asked() Quota {
	return Quota{Sandboxes: 1, MemoryBytes: l.MemoryBytes, CPUMillis: l.CPUMillis, DiskBytes: l.DiskBytes}
}

// claim asks for room for a sandbox, or more room for one, on behalf of who.
// The claim holds until settle or drop.
func (e *Engine) claim(ctx context.Context, who keys.Principal, s *Sandbox, want Quota) (*claim, error) {
	if want.Sandboxes > 0 {
		if err := e.diskSpace(); err != nil {
			return nil, err
		}
	}
	c := &claim{e: e, want: want}
	if !who.IsAdmin() && e.cfg.MemberQuota != (Quota{}) {
		c.owner = s.Owner
	}
	if e.cfg.OrgQuota != (Quota{}) {
		c.org = s.Org
	}
	if c.owner == "" && c.org == "" {
		return c, nil
	}
	unlock, err := e.claims.turn.lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.owner != "" {
		if err := c.fits(ctx, e.cfg.MemberQuota, c.owner, ""); err != nil {
			return nil, err
		}
	}
	if c.org != "" {
		if err := c.fits(ctx, e.cfg.OrgQuota, "", c.org); err != nil {
			return nil, err
		}
	}
	e.claims.mu.Lock()
	defer e.claims.mu.Unlock()
	if e.claims.open == nil {
		e.claims.open = map[*claim]struct{}{}
	}
	e.claims.open[c] = struct{}{}
	return c, nil
}

// settle writes what was claimed into the records; the claim ends with that.
func (c *claim) settle(ctx context.Context, record func() error) error {
	if c.owner == "" && c.org == "" {
		return record()
	}
	unlock, err := c.e.claims.turn.lock(ctx, "")
	if err != nil {
		return err
	}
	defer unlock()
	defer c.drop()
	return record()
}

// drop gives up what was claimed and not settled.
func (c *claim) drop() {
	c.once.Do(func() {
		c.e.claims.mu.Lock()
		defer c.e.claims.mu.Unlock()
		delete(c.e.claims.open, c)
	})
}

// fits compares one quota with what is held, claimed and wanted.
func (c *claim) fits(ctx context.Context, quota Quota, owner, org string) error {
	if quota == (Quota{}) {
		return nil
	}
	held, err := c.e.cfg.Store.Held(ctx, owner, org)
	if err != nil {
		return err
	}
	c.e.claims.mu.Lock()
	for other := range c.e.claims.open {
		if owner != "" && other.owner == owner || org != "" && other.org == org {
			held = held.plus(other.want)
		}
	}
	c.e.claims.mu.Unlock()
	whose, may := "you", "you may have"
	if org != "" {
		whose, may = "the org "+org, "it may have"
	}
	have := "have"
	if org != "" {
		have = "has"
	}
	if n := held.Sandboxes + c.want.Sandboxes; quota.Sandboxes > 0 && c.want.Sandboxes > 0 && n > quota.Sandboxes {
		return fault.New(fault.Exhausted, "%s %s %d sandboxes and %s %d; delete one first", whose, have, held.Sandboxes, may, quota.Sandboxes).About("sandbox")
	}
	for _, f := range quotaFields(&quota, &held, &c.want) {
		switch {
		case f.quota == 0:
		case f.want == 0 && c.want.Sandboxes > 0:
			return &fault.Error{Code: fault.Invalid, Kind: "sandbox", Field: f.name,
				Message: fmt.Sprintf("a sandbox without a limit does not fit a quota of %s; name a limit", f.format(f.quota))}
		case f.want > 0 && f.want > f.quota-f.held:
			return fault.New(fault.Exhausted, "%s %s %s of %s in use and asked for %s more; %s %s. Pause or delete a sandbox, or ask for less",
				whose, have, f.format(f.held), f.name, f.format(f.want), may, f.format(f.quota)).About("sandbox")
		}
	}
	return nil
}

func (q Quota) plus(o Quota) Quota {
	return Quota{
		Sandboxes: q.Sandboxes + o.Sandboxes, MemoryBytes: q.MemoryBytes + o.MemoryBytes,
		CPUMillis: q.CPUMillis + o.CPUMillis, DiskBytes: q.DiskBytes + o.DiskBytes,
	}
}

type quotaField struct {
	name              string
	quota, held, want int64
	format            func(int64) string
}

func quotaFields(quota, held, want *Quota) []quotaField {
	return []quotaField{
		{"memory", quota.MemoryBytes, held.MemoryBytes, want.MemoryBytes, FormatBytes},
		{"cpu", quota.CPUMillis, held.CPUMillis, want.CPUMillis, FormatCPU},
		{"disk", quota.DiskBytes, held.DiskBytes, want.DiskBytes, FormatBytes},
	}
}

// checkQuota refuses a quota that the driver has no limits for: nobody could
// make anything under it.
func (q Quota) checkQuota(caps driver.Capabilities) error {
	for feature, n := range map[string]int64{
		driver.FeatureMemoryLimit: q.MemoryBytes, driver.FeatureCPULimit: q.CPUMillis, driver.FeatureDiskLimit: q.DiskBytes,
	} {
		if n > 0 && !caps.Support[feature].OK {
			return fault.New(fault.Unsupported, "a quota needs a %s, and this server has none: %s", feature, caps.Support[feature].Reason)
		}
	}
	return nil
}
