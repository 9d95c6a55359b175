package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// many is how many sandboxes the listings are measured with, and pages how
// often each is asked for.
const (
	many  = 100_000
	pages = 100
)

// BenchmarkList measures every filter and order that a list may have, for who
// sees all, for an owner of half of all, and for one of few. It tells the
// slowest of them and what it took.
func BenchmarkList(b *testing.B) {
	s := openStore(b)
	fillMany(b, s)
	owners := map[string]string{"all": "", "half": "big", "few": "owner7"}
	filters := map[string]sandbox.SandboxFilter{
		"inventory": {Statuses: []sandbox.Status{sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Suspended, sandbox.Failed}},
		"live":      {LiveOnly: true},
		"all":       {},
		"failed":    {Statuses: []sandbox.Status{sandbox.Failed}},
		"deleted":   {Statuses: []sandbox.Status{sandbox.Deleted}},
		"oneshot":   {Mode: sandbox.Oneshot},
		"project":   {Project: "p7"},
		"several":   {Project: "p7", Mode: sandbox.Oneshot, Statuses: []sandbox.Status{sandbox.Failed, sandbox.Idle}},
		"name":      {Name: "name-4711"},
	}
	for who, owner := range owners {
		for what, filter := range filters {
			b.Run(who+"/"+what, func(b *testing.B) {
				var usual, worst time.Duration
				which := ""
				for _, sort := range []string{"name", "created", "updated", "status", "mode", "execution_count"} {
					for _, asc := range []bool{false, true} {
						f := filter
						f.Owner, f.SortBy, f.Asc, f.Limit = owner, sort, asc, 50
						p50, p99 := listTime(b, s, f)
						usual = max(usual, p50)
						if p99 > worst {
							worst, which = p99, fmt.Sprint(sort, " asc=", asc)
						}
					}
				}
				b.ReportMetric(float64(usual.Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(worst.Microseconds())/1000, "p99-ms")
				b.Logf("slowest by %s: %s", which, worst)
			})
		}
	}
}

// listTime is the median and the 99th percentile of what the first pages of a
// list take.
func listTime(b *testing.B, s *Store, f sandbox.SandboxFilter) (p50, p99 time.Duration) {
	took := make([]time.Duration, 0, pages)
	for i := range pages {
		f.Offset = i % 4 * f.Limit
		start := time.Now()
		_, _, err := s.Sandboxes(context.Background(), f)
		took = append(took, time.Since(start))
		must(b, err)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// fillMany records sandboxes as an old server has them: most have ended, half
// are of one owner, the live ones are the newest and a few of the oldest.
func fillMany(b *testing.B, s *Store) {
	b.Helper()
	tx, err := s.write.BeginTx(b.Context(), nil)
	must(b, err)
	sb := newSandbox("")
	insert, err := tx.Prepare("INSERT INTO sandboxes (" + sandboxColumns + ") VALUES (" + marks(len(sandboxFields(&sb))) + ")")
	must(b, err)
	defer insert.Close()
	for i := range many {
		sb := newSandbox(fmt.Sprintf("sbx_%06d", i*7919%many))
		sb.Owner = "big"
		if i%2 == 0 {
			sb.Owner = fmt.Sprint("owner", i/2%500)
		}
		sb.Name, sb.Project = fmt.Sprint("name-", i), fmt.Sprint("p", i%100)
		if i%3 == 0 {
			sb.Mode = sandbox.Oneshot
		}
		switch {
		case i > many*9/10 || i%1000 == 0:
			sb.Status = []sandbox.Status{sandbox.Idle, sandbox.Running, sandbox.Paused}[i%3]
		case i%100 == 1:
			sb.Status = sandbox.Failed
		default:
			sb.Status = []sandbox.Status{sandbox.Terminated, sandbox.Deleted}[i%2]
		}
		sb.Executions = i % 50
		sb.CreatedAt = epoch.Add(time.Duration(i) * time.Second)
		sb.UpdatedAt = epoch.Add(time.Duration(i*7919%many) * time.Second)
		_, err := insert.Exec(sandboxFields(&sb)...)
		must(b, err)
	}
	must(b, tx.Commit())
}
