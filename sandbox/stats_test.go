package sandbox_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// egressBook is an Egress that keeps what it is told.
type egressBook struct {
	mu      sync.Mutex
	allow   map[string][]string
	set     int
	in, out int64
	fail    error
}

func (e *egressBook) SetPolicy(_ context.Context, id string, allow []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	if e.allow == nil {
		e.allow = map[string][]string{}
	}
	e.allow[id] = allow
	e.set++
	return nil
}

func (e *egressBook) Traffic(context.Context, string) (in, out int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.in, e.out, nil
}

// Totals grow over pauses, deaths and servers, whatever the counters of the
// driver do, and time that a sandbox is down does not count.
func TestUsageGoesOn(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	use := func(cpu time.Duration, memory int64) {
		w.host.SetUsage(s.ID, driver.Usage{CPU: cpu, MemoryBytes: memory, Processes: 3, DiskBytes: 50})
	}
	check := func(when string, cpu, uptime time.Duration, memory float64) {
		t.Helper()
		u, err := a.Usage(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		near := func(got, want float64) bool { return got > want*0.99-1 && got < want*1.01+1 }
		if u.CPU != cpu || !near(u.Uptime.Seconds(), uptime.Seconds()) || !near(u.MemorySecond, memory) {
			t.Errorf("%s: %+v, want cpu %s, uptime %s, memory %g", when, u, cpu, uptime, memory)
		}
	}
	use(5*time.Second, 100)
	w.now.advance(10 * time.Second)
	w.engine.Sample(t.Context())
	check("after a sample", 5*time.Second, 10*time.Second, 1000)
	use(7*time.Second, 200)
	w.now.advance(10 * time.Second)
	if _, err := a.Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Hour)
	check("paused", 7*time.Second, 20*time.Second, 3000)
	if u, err := a.Usage(t.Context(), s.ID); err != nil || u.MemoryBytes != 0 || u.Processes != 0 || u.DiskBytes != 50 {
		t.Errorf("a paused sandbox uses %+v, %v", u, err)
	}
	if _, err := a.Resume(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	use(8*time.Second, 100) // more than before, but from zero
	w.now.advance(10 * time.Second)
	check("resumed", 15*time.Second, 30*time.Second, 4000)

	w.restart()
	a = w.engine.As(alice)
	use(9*time.Second, 100) // the same start
	w.now.advance(10 * time.Second)
	check("another server", 16*time.Second, 40*time.Second, 5000)
	w.engine.Sample(t.Context())

	stats, err := w.engine.As(alice).Stats(t.Context(), "", time.Time{}, time.Time{})
	if err != nil || stats.CPU != 16*time.Second || stats.Sandboxes != 1 || stats.ByStatus[sandbox.Idle] != 1 || stats.MemoryBytes != 100 || stats.DiskBytes != 50 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if stats, err = w.engine.As(bob).Stats(t.Context(), "", time.Time{}, time.Time{}); err != nil || stats.Sandboxes != 0 || stats.CPU != 0 {
		t.Errorf("bob sees %+v, %v", stats, err)
	}
	if stats, err = w.engine.As(admin).Stats(t.Context(), "", w.now.Now(), time.Time{}); err != nil || stats.Sandboxes != 1 || stats.CPU != 0 {
		t.Errorf("since now %+v, %v", stats, err)
	}
	_, err = w.engine.As(admin).Stats(t.Context(), "", w.now.Now(), w.now.Now().Add(-time.Hour))
	wantCode(t, err, fault.Invalid)
	_, err = w.engine.As(admin).Stats(t.Context(), "a/b", time.Time{}, time.Time{})
	wantCode(t, err, fault.Invalid)
}

// What a run used is not forgotten because it was over before a sample.
func TestUsageOfOneshot(t *testing.T) {
	w := newWorld(t)
	made, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Mode: sandbox.Oneshot, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	w.host.SetUsage(made.Sandbox.ID, driver.Usage{CPU: 3 * time.Second, MemoryBytes: 10, DiskBytes: -1})
	if err := w.engine.As(alice).WriteStdin(t.Context(), made.Execution.ID, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	w.status(made.Sandbox.ID, sandbox.Terminated)
	u, err := w.engine.As(alice).Usage(t.Context(), made.Sandbox.ID)
	if err != nil || u.CPU != 3*time.Second || u.MemoryBytes != 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	stats, err := w.engine.As(alice).Stats(t.Context(), "", time.Time{}, time.Time{})
	if err != nil || stats.CPU != 3*time.Second || stats.Executions != 1 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}
