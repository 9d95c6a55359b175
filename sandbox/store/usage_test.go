package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// sample is a sample at a number of seconds after the epoch, with counters that
// have grown by one per second.
func sample(id string, second int) sandbox.Usage {
	n := int64(second)
	return sandbox.Usage{
		SandboxID: id, At: epoch.Add(time.Duration(second) * time.Second), CPU: time.Duration(n), MemoryBytes: 100, DiskBytes: 10, Processes: 2,
		NetIn: n, NetOut: 2 * n, MemorySecond: 100 * float64(n), Uptime: time.Duration(second) * time.Second,
		Raw: sandbox.Counters{CPU: time.Duration(n + 1), NetIn: n + 2, NetOut: n + 3},
	}
}

func TestUsage(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_a"))
	_, err := s.LastUsage(t.Context(), "sbx_a")
	wantCode(t, err, fault.NotFound)
	var all []sandbox.Usage
	for i := range 100 {
		all = append(all, sample("sbx_a", i))
	}
	must(t, s.AddUsage(t.Context(), all))
	last, err := s.LastUsage(t.Context(), "sbx_a")
	must(t, err)
	same(t, "last sample", last, all[99])
	all[99].MemoryBytes = 7 // of the same moment
	must(t, s.AddUsage(t.Context(), all[99:]))
	last, err = s.LastUsage(t.Context(), "sbx_a")
	must(t, err)
	same(t, "replaced sample", last, all[99])
	if err := s.AddUsage(t.Context(), []sandbox.Usage{sample("sbx_none", 1)}); err == nil {
		t.Error("a sample of no sandbox was taken")
	}

	seconds := func() string {
		rows, err := s.read.QueryContext(t.Context(), "SELECT at FROM usage ORDER BY at")
		list, err := collect(rows, err, func(n *int64) []any { return []any{n} })
		must(t, err)
		out := ""
		for _, n := range list {
			out += fmt.Sprint((n-epoch.UnixNano())/int64(time.Second), " ")
		}
		return out
	}
	// epoch need not lie at the beginning of a step.
	from := epoch.Truncate(10 * time.Second).Add(20 * time.Second)
	must(t, s.ThinUsage(t.Context(), from, from.Add(60*time.Second), 10*time.Second))
	if n := strings.Count(seconds(), " "); n != 100-60+6 {
		t.Errorf("thinned to %d: %s", n, seconds())
	}
	must(t, s.TrimUsage(t.Context(), epoch.Add(95*time.Second)))
	if got := seconds(); got != "94 95 96 97 98 99 " {
		t.Errorf("trimmed to %s", got)
	}
	must(t, s.TrimUsage(t.Context(), epoch.Add(time.Hour)))
	if got := seconds(); got != "99 " {
		t.Errorf("of an old sandbox is left %s", got)
	}
}

func TestStats(t *testing.T) {
	s := openStore(t)
	a, b, c, gone := newSandbox("sbx_a"), newSandbox("sbx_b"), newSandbox("sbx_c"), newSandbox("sbx_gone")
	b.Owner, b.Org, b.Status = "bob", "acme", sandbox.Paused
	c.CreatedAt = epoch.Add(time.Hour)
	gone.Status, gone.EndedAt = sandbox.Deleted, epoch.Add(5*time.Second)
	create(t, s, a, b, c, gone)
	must(t, s.AddUsage(t.Context(), []sandbox.Usage{
		sample("sbx_a", 10), sample("sbx_a", 20), sample("sbx_a", 30), sample("sbx_b", 12), sample("sbx_b", 22), sample("sbx_gone", 4),
	}))
	must(t, s.CreateExecution(t.Context(), sandbox.Execution{ID: "exec_1", SandboxID: "sbx_a", Status: sandbox.ExecCompleted, CreatedAt: epoch.Add(15 * time.Second)}))
	must(t, s.CreateExecution(t.Context(), sandbox.Execution{ID: "exec_2", SandboxID: "sbx_b", Status: sandbox.ExecCompleted, CreatedAt: epoch}))
	start, end := epoch.Add(11*time.Second), epoch.Add(25*time.Second)

	got, err := s.Stats(t.Context(), "", "", start, end)
	must(t, err)
	same(t, "stats of all", got, sandbox.Stats{
		Start: start, End: end, Sandboxes: 2, Executions: 1,
		ByStatus: map[sandbox.Status]int{sandbox.Running: 1, sandbox.Idle: 1, sandbox.Paused: 1},
		// a went from 10 to 20, b from nothing known to 22.
		CPU: 32, MemorySecond: 3200, NetIn: 32, NetOut: 64, Uptime: 32 * time.Second,
		MemoryBytes: 100, DiskBytes: 20,
	})
	got, err = s.Stats(t.Context(), "bob", "acme", start, end)
	must(t, err)
	if got.Sandboxes != 1 || got.CPU != 22 || got.Executions != 0 || got.MemoryBytes != 0 || got.DiskBytes != 10 {
		t.Errorf("stats of bob in acme %+v", got)
	}
	got, err = s.Stats(t.Context(), "alice", "acme", start, end)
	must(t, err)
	if got.Sandboxes != 0 || got.CPU != 0 || len(got.ByStatus) != 0 {
		t.Errorf("stats of alice in acme %+v", got)
	}
}

func TestHeld(t *testing.T) {
	s := openStore(t)
	for i, status := range []sandbox.Status{sandbox.Creating, sandbox.Running, sandbox.Paused, sandbox.Suspended, sandbox.Stopping, sandbox.Failed, sandbox.Deleted} {
		sb := newSandbox(fmt.Sprint("sbx_", i))
		sb.Status, sb.Org, sb.Limits = status, "acme", sandbox.Limits{MemoryBytes: 10, CPUMillis: 100, DiskBytes: 1000}
		create(t, s, sb)
	}
	other := newSandbox("sbx_other")
	other.Owner, other.Org, other.Limits.MemoryBytes = "bob", "acme", 5
	create(t, s, other)
	for _, tt := range []struct {
		owner, org string
		want       sandbox.Quota
	}{
		{"alice", "", sandbox.Quota{Sandboxes: 5, MemoryBytes: 30, CPUMillis: 300, DiskBytes: 5000}},
		{"", "acme", sandbox.Quota{Sandboxes: 6, MemoryBytes: 35, CPUMillis: 300, DiskBytes: 5000}},
		{"bob", "acme", sandbox.Quota{Sandboxes: 1, MemoryBytes: 5}},
		{"carol", "", sandbox.Quota{}},
	} {
		got, err := s.Held(t.Context(), tt.owner, tt.org)
		must(t, err)
		same(t, "held by "+tt.owner+" in "+tt.org, got, tt.want)
	}
}

func TestDue(t *testing.T) {
	s := openStore(t)
	add := func(id string, set func(*sandbox.Sandbox)) {
		sb := newSandbox(id)
		sb.Driver, sb.ActiveAt, sb.Timeouts.Idle = "gvisor", epoch, time.Minute
		set(&sb)
		create(t, s, sb)
	}
	add("sbx_idle", func(*sandbox.Sandbox) {})
	add("sbx_later", func(sb *sandbox.Sandbox) { sb.ActiveAt = epoch.Add(time.Second) })
	add("sbx_never", func(sb *sandbox.Sandbox) { sb.Timeouts.Idle = 0 })
	add("sbx_busy", func(sb *sandbox.Sandbox) { sb.Status = sandbox.Running })
	add("sbx_docker", func(sb *sandbox.Sandbox) { sb.Driver = "docker" })
	add("sbx_paused", func(sb *sandbox.Sandbox) { sb.Status, sb.TerminatesAt = sandbox.Paused, epoch.Add(time.Minute) })
	add("sbx_pausedlater", func(sb *sandbox.Sandbox) { sb.Status, sb.TerminatesAt = sandbox.Paused, epoch.Add(time.Hour) })
	add("sbx_pausednever", func(sb *sandbox.Sandbox) { sb.Status = sandbox.Paused })
	due := func(at time.Time) string {
		list, err := s.Due(t.Context(), "gvisor", at, 100)
		must(t, err)
		return ids(list)
	}
	if got := due(epoch.Add(time.Minute - 1)); got != "" {
		t.Errorf("too early: %s", got)
	}
	if got := due(epoch.Add(time.Minute)); got != "sbx_idle sbx_paused " {
		t.Errorf("due are %s", got)
	}
	must(t, s.TouchSandbox(t.Context(), "sbx_idle", epoch.Add(time.Hour)))
	must(t, s.TouchSandbox(t.Context(), "sbx_idle", epoch)) // does not go back
	if got := due(epoch.Add(2 * time.Minute)); got != "sbx_later sbx_paused " {
		t.Errorf("after a touch are due %s", got)
	}
	sb, err := s.Sandbox(t.Context(), "sbx_idle")
	must(t, err)
	if !sb.UpdatedAt.Equal(epoch) {
		t.Errorf("a touch is no update, but it is noted as one of %s", sb.UpdatedAt)
	}
	plan, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN SELECT id FROM sandboxes WHERE terminates_at<>0 AND terminates_at<=? AND status='paused'"+
		" UNION ALL SELECT id FROM sandboxes WHERE status='idle' AND idle_timeout>0 AND active_at+idle_timeout<=?", 1, 1)
	must(t, err)
	defer plan.Close()
	var a, b, c int
	var what, steps string
	for plan.Next() {
		must(t, plan.Scan(&a, &b, &c, &what))
		steps += what + "\n"
	}
	must(t, plan.Err())
	if !strings.Contains(steps, "sandboxes_terminates (terminates_at<") || !strings.Contains(steps, "sandboxes_idle_ends (<expr>") {
		t.Errorf("the indexes are not used:\n%s", steps)
	}
}
