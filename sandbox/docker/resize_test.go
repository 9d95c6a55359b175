package docker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// TestResize holds that limits change while a sandbox runs, and last.
func TestResize(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) { s.Limits = driver.Limits{MemoryBytes: 256 << 20, Processes: 200} })
	resize := func(l driver.Limits) error { return b.d.Resize(t.Context(), b.id, l) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err, errors.Unwrap(err))
		}
	}
	must(resize(driver.Limits{MemoryBytes: 64 << 20, CPUMillis: 500, Processes: 50}))
	if h := hostConfig(t, b); h.Memory != 64<<20 || h.MemorySwap != 64<<20 || h.NanoCPUs != 500e6 || *h.PidsLimit != 50 {
		t.Errorf("the engine notes %d, %d, %d, %d", h.Memory, h.MemorySwap, h.NanoCPUs, *h.PidsLimit)
	}
	if out := forks(t, b); out >= 60 {
		t.Errorf("%d processes where 50 are allowed", out)
	}

	// They are those of the next start too.
	b.stop(t)
	b.start(t)
	if out := forks(t, b); out >= 60 {
		t.Errorf("%d processes where 50 are allowed, after a start", out)
	}
	hog(t, b, 128)
	if s, err := b.d.Wait(t.Context(), b.id); err != nil || !s.Exit.OOM {
		t.Errorf("more memory than the new limit: %+v, %v", s, err)
	}

	// Stopped, and without limits.
	must(resize(driver.Limits{}))
	b.start(t)
	if out := forks(t, b); out != 60 {
		t.Errorf("%d processes where all are allowed", out)
	}
	must(resize(driver.Limits{MemoryBytes: 512 << 20, CPUMillis: 1_000_000}))
	must(resize(driver.Limits{}))
	if got := b.sh(t, "head -c 134217728 /dev/zero | tail -c 1 | wc -c"); strings.TrimSpace(got) != "1" {
		t.Errorf("got %q", got)
	}

	for _, tt := range []struct {
		limits driver.Limits
		code   fault.Code
		field  string
	}{
		{driver.Limits{DiskBytes: 1 << 30}, fault.Unsupported, driver.FeatureDiskLimit},
		{driver.Limits{MemoryBytes: -1}, fault.Invalid, driver.FeatureMemoryLimit},
		{driver.Limits{Processes: 1}, fault.Invalid, driver.FeatureProcessLimit},
	} {
		err := resize(tt.limits)
		if fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%+v: %v", tt.limits, err)
		}
	}
	if h := hostConfig(t, b); h.Memory < 1<<50 || h.PidsLimit != nil && *h.PidsLimit > 0 {
		t.Errorf("what was refused is noted: %d", h.Memory)
	}
	if err := b.d.Resize(t.Context(), "nobody", driver.Limits{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a sandbox that does not exist: %v", err)
	}
}

// forks counts how many of 60 processes a sandbox can have at once.
func forks(t *testing.T, b *box) int {
	t.Helper()
	out := b.sh(t, `( for i in 1 2 3 4 5 6; do ( for j in 1 2 3 4 5 6 7 8 9 10; do { echo x; sleep 1; } & done; wait ) & done; wait ) 2>/dev/null; true`)
	return strings.Count(out, "x")
}

// hog lets a process take memory, in MiB.
func hog(t *testing.T, b *box, mib int) {
	t.Helper()
	p, err := b.conn.Start(t.Context(), guest.Command{ID: "hog", NoStdin: true, Args: []string{"dd", "if=/dev/zero", "of=/dev/null", fmt.Sprintf("bs=%dM", mib), "count=1"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = p.Wait(t.Context()) // it ends with the sandbox
}
