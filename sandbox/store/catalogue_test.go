package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// What the catalogue selects is what the database would, in the same order, for
// every filter, order and page, while sandboxes come and change.
func TestCatalogueAgreesWithTheDatabase(t *testing.T) {
	s := openStore(t)
	other := openAt(t, s.path) // another process on the same file
	rnd := rand.New(rand.NewPCG(1, 2))
	statuses := []sandbox.Status{sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Terminated, sandbox.Failed, sandbox.Deleted}
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	n := 0
	for round := range 30 {
		for range 10 {
			sb := newSandbox(fmt.Sprint("sbx_", rnd.Uint32()))
			sb.Owner, sb.Project = pick("alice", "bob"), pick("", "p", "q")
			sb.Mode, sb.Status = sandbox.Mode(pick("oneshot", "interactive")), statuses[rnd.IntN(len(statuses))]
			sb.Name = fmt.Sprint("n", n)
			sb.CreatedAt, sb.Executions = epoch.Add(time.Duration(rnd.IntN(5))*time.Hour), rnd.IntN(4)
			create(t, []*Store{s, other}[n%2], sb)
			n++
			if n%3 == 0 {
				_, err := other.UpdateSandbox(t.Context(), sb.ID, func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
					sb.Status, sb.Executions = statuses[rnd.IntN(len(statuses))], 9
					return nil, nil
				})
				must(t, err)
			}
		}
		for range 20 {
			f := sandbox.SandboxFilter{
				Owner: pick("", "alice", "bob", "nobody"), Project: pick("", "", "p"), Mode: sandbox.Mode(pick("", "", "oneshot")),
				LiveOnly: rnd.IntN(4) == 0, SortBy: pick("", "name", "created", "updated", "status", "mode", "execution_count"), Asc: rnd.IntN(2) == 0,
			}
			for range rnd.IntN(3) {
				f.Statuses = append(f.Statuses, statuses[rnd.IntN(len(statuses))])
			}
			all, want, err := s.Sandboxes(t.Context(), f) // without a limit it asks the database
			must(t, err)
			f.Limit, f.Offset = 1+rnd.IntN(20), rnd.IntN(1+round*4)
			page, total, err := s.Sandboxes(t.Context(), f)
			must(t, err)
			first := min(f.Offset, len(all))
			if total != want || ids(page) != ids(all[first:min(first+f.Limit, len(all))]) {
				t.Fatalf("%+v: %d of %d: %s\nwant %d: %s", f, len(page), total, ids(page), want, ids(all))
			}
		}
	}
}

func TestPart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	order := func(a, b *entry) int { return int(a.created - b.created) }
	for range 2000 {
		size := rnd.IntN(40)
		list := make([]*entry, size)
		for i := range list {
			list[i] = &entry{created: int64(rnd.IntN(10))}
		}
		n := rnd.IntN(size + 2)
		part(list, n, order)
		if n > 0 && n < size && order(slices.MaxFunc(list[:n], order), slices.MinFunc(list[n:], order)) > 0 {
			t.Fatalf("the first %d of %d are not the smallest", n, size)
		}
	}
}
