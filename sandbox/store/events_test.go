package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

func TestEventHistory(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	a, b := newSandbox("sbx_a"), newSandbox("sbx_b")
	b.Owner = "bob"
	create(t, s, a, b) // positions 1 and 2
	types := []sandbox.EventType{sandbox.EventPause, sandbox.EventResume}
	for i := range 6 { // positions 3 to 8, in turns
		id := []string{"sbx_a", "sbx_b"}[i%2]
		_, err := s.UpdateSandbox(ctx, id, func(*sandbox.Sandbox) ([]sandbox.Event, error) {
			return []sandbox.Event{{Type: types[i/2%2], At: epoch.Add(time.Duration(i) * time.Hour)}}, nil
		})
		must(t, err)
	}
	for name, tc := range map[string]struct {
		filter sandbox.EventFilter
		want   string // positions
	}{
		"all":          {sandbox.EventFilter{}, "8 7 6 5 4 3 2 1"},
		"oldest first": {sandbox.EventFilter{Asc: true, Limit: 3}, "1 2 3"},
		"after":        {sandbox.EventFilter{Asc: true, After: 5}, "6 7 8"},
		"before":       {sandbox.EventFilter{Before: 4}, "3 2 1"},
		"owner":        {sandbox.EventFilter{Owner: "bob"}, "8 6 4 2"},
		"sandbox":      {sandbox.EventFilter{SandboxID: "sbx_a", After: 1, Before: 4}, "5 3"},
		"foreign":      {sandbox.EventFilter{SandboxID: "sbx_a", Owner: "bob"}, ""},
		"types":        {sandbox.EventFilter{Types: []sandbox.EventType{sandbox.EventResume, sandbox.EventCreate}}, "6 5 2 1"},
		"time":         {sandbox.EventFilter{Since: epoch.Add(2 * time.Hour), Until: epoch.Add(5 * time.Hour)}, "7 6 5"},
	} {
		events, err := s.EventHistory(ctx, tc.filter)
		must(t, err)
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Position))
			if owner := map[string]string{"sbx_a": "alice", "sbx_b": "bob"}[e.SandboxID]; e.Owner != owner {
				t.Errorf("%s: event of %s has the owner %q", name, e.SandboxID, e.Owner)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
	if last, err := s.LastPosition(ctx); err != nil || last != 8 {
		t.Errorf("last %d, %v", last, err)
	}
}

// Whoever reads on from the last position seen gets everything, once, while
// many write.
func TestEventsInOrderOfPosition(t *testing.T) {
	const writers, each = 8, 25
	s := openStore(t)
	for w := range writers {
		create(t, s, newSandbox(fmt.Sprint("sbx_", w)))
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				_, err := s.UpdateSandbox(t.Context(), fmt.Sprint("sbx_", w), func(*sandbox.Sandbox) ([]sandbox.Event, error) {
					return []sandbox.Event{{Type: sandbox.EventUpdate}, {Type: sandbox.EventUpdate}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := int64(0)
	for seen < writers+writers*each*2 {
		written := s.Written()
		page, err := s.EventHistory(t.Context(), sandbox.EventFilter{After: seen, Asc: true, Limit: 7})
		must(t, err)
		for _, e := range page {
			if e.Position != seen+1 {
				t.Fatalf("position %d after %d", e.Position, seen)
			}
			seen = e.Position
		}
		if len(page) == 0 {
			select {
			case <-written:
			case <-time.After(20 * time.Second):
				t.Fatal("nobody told of a write")
			}
		}
	}
	wg.Wait()
	for w := range writers {
		checkEvents(t, s, fmt.Sprint("sbx_", w))
	}
}

// Each list of events is a range of an index.
func TestEventPlans(t *testing.T) {
	s := openStore(t)
	for query, want := range map[string]string{
		"sandbox_id=? AND seq>? ORDER BY seq LIMIT 5":           "USING INDEX sqlite_autoindex_events_2 (sandbox_id=? AND seq>?)",
		"sandbox_id=? AND seq>? ORDER BY seq DESC LIMIT 5":      "USING INDEX sqlite_autoindex_events_2 (sandbox_id=? AND seq>?)",
		"position>? ORDER BY position LIMIT 5":                  "USING INTEGER PRIMARY KEY (rowid>?)",
		"position>? AND owner=? ORDER BY position DESC LIMIT 5": "USING INDEX events_owner (owner=? AND position>?)",
	} {
		plan := explain(t, s, "SELECT "+eventColumns+" FROM events WHERE "+query)
		if !strings.Contains(plan, want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s: %s", query, plan)
		}
	}
}

// explain returns the plan of a query, a step a line.
func explain(tb testing.TB, s *Store, query string) string {
	tb.Helper()
	args := make([]any, strings.Count(query, "?"))
	for i := range args {
		args[i] = 1
	}
	rows, err := s.read.QueryContext(tb.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	must(tb, err)
	defer rows.Close()
	plan := ""
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(tb, rows.Scan(&id, &parent, &unused, &detail))
		plan += detail + "\n"
	}
	must(tb, rows.Err())
	return plan
}
