package sandbox_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

const gi = 1 << 30

func TestQuotaNamesNumberAndLimit(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) {
		c.MemberQuota = sandbox.Quota{Sandboxes: 3, MemoryBytes: 4 * gi, CPUMillis: 2000, DiskBytes: 10 * gi}
		c.OrgQuota = sandbox.Quota{MemoryBytes: 5 * gi}
	})
	small := sandbox.Limits{MemoryBytes: 1 * gi, CPUMillis: 500, DiskBytes: 1 * gi}
	with := func(change func(*sandbox.Limits)) sandbox.Limits {
		l := small
		change(&l)
		return l
	}
	w.create(alice, sandbox.CreateRequest{Limits: small, Org: "acme"})
	for name, tt := range map[string]struct {
		limits sandbox.Limits
		code   fault.Code
		says   string
	}{
		"memory":        {with(func(l *sandbox.Limits) { l.MemoryBytes = 4 * gi }), fault.Exhausted, "you have 1Gi of memory in use and asked for 4Gi more; you may have 4Gi"},
		"cpu":           {with(func(l *sandbox.Limits) { l.CPUMillis = 1600 }), fault.Exhausted, "you have 500m of cpu in use and asked for 1600m more; you may have 2000m"},
		"disk":          {with(func(l *sandbox.Limits) { l.DiskBytes = 10 * gi }), fault.Exhausted, "you have 1Gi of disk in use and asked for 10Gi more; you may have 10Gi"},
		"without limit": {with(func(l *sandbox.Limits) { l.CPUMillis = 0 }), fault.Invalid, "cpu: a sandbox without a limit does not fit a quota of 2000m"},
	} {
		_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Limits: tt.limits})
		if fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.create(bob, sandbox.CreateRequest{Limits: with(func(l *sandbox.Limits) { l.MemoryBytes = 4 * gi }), Org: "acme"})
	_, err := w.engine.As(bob).Create(t.Context(), sandbox.CreateRequest{Limits: small})
	wantCode(t, err, fault.Exhausted) // he has all of his own
	_, err = w.engine.As(admin).Create(t.Context(), sandbox.CreateRequest{Limits: small, Org: "acme"})
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "the org acme has 5Gi of memory in use") {
		t.Errorf("an admin in the org: %v", err)
	}
	w.create(admin, sandbox.CreateRequest{}) // outside of it nothing holds an admin
	w.create(alice, sandbox.CreateRequest{Limits: small})
	w.create(alice, sandbox.CreateRequest{Limits: small})
	_, err = w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Limits: small})
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "you have 3 sandboxes and you may have 3") {
		t.Errorf("a fourth: %v", err)
	}
}

// However many ask at once, no more than the quota is made.
func TestQuotaHoldsForAllAtOnce(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.MemberQuota = sandbox.Quota{MemoryBytes: 3 * gi} })
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1 * gi}})
			switch {
			case err == nil:
				made.Add(1)
			case fault.Is(err, fault.Exhausted):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 3 || refused.Load() != 9 {
		t.Errorf("%d were made and %d refused", made.Load(), refused.Load())
	}
}

// What is paused frees memory and CPU, not its place and its disk, and has to
// ask again.
func TestQuotaOfPaused(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) {
		c.MemberQuota = sandbox.Quota{Sandboxes: 3, MemoryBytes: 2 * gi, DiskBytes: 3 * gi}
	})
	big := sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 2 * gi, DiskBytes: 1 * gi}}
	a := w.engine.As(alice)
	first := w.create(alice, big)
	if _, err := a.Pause(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	second := w.create(alice, big)
	_, err := a.Resume(t.Context(), first.ID)
	wantCode(t, err, fault.Exhausted)
	w.status(first.ID, sandbox.Paused)
	_, err = a.Execute(t.Context(), first.ID, sandbox.ExecRequest{Command: []string{"true"}})
	wantCode(t, err, fault.Exhausted)
	if _, err := a.Pause(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Resume(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	_, err = a.Create(t.Context(), sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1 * gi, DiskBytes: 2 * gi}})
	wantCode(t, err, fault.Exhausted) // the disk of the paused one is taken
	// A claim that came to nothing is given back.
	if err := a.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	w.host.FailNext(fake.Create, fault.New(fault.Unavailable, "no"))
	if _, err := a.Create(t.Context(), big); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	w.create(alice, big)
}

func TestQuotaNeedsLimits(t *testing.T) {
	w := newWorld(t)
	_, err := sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: fake.New(fake.Config{Host: w.host, Unsupported: map[string]string{driver.FeatureMemoryLimit: "no cgroups here"}}),
		Store:  w.store, Images: images{}, OutputDir: t.TempDir(), OrgQuota: sandbox.Quota{MemoryBytes: gi},
	})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no cgroups here") {
		t.Errorf("error %v", err)
	}
}
