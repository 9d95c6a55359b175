package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// allStatuses are the statuses of the domain.
var allStatuses = []sandbox.Status{
	sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Stopping,
	sandbox.Suspended, sandbox.Terminated, sandbox.Failed, sandbox.Deleted,
}

func TestSandboxes(t *testing.T) {
	s := openStore(t)
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	for _, sb := range []sandbox.Sandbox{
		{ID: "a", Name: "web", Owner: "alice", Project: "p", Mode: sandbox.Interactive, Status: sandbox.Idle, Executions: 3, CreatedAt: at(1), UpdatedAt: at(9)},
		{ID: "b", Name: "db", Owner: "alice", Project: "q", Mode: sandbox.Oneshot, Status: sandbox.Running, Executions: 1, CreatedAt: at(2), UpdatedAt: at(8)},
		{ID: "c", Name: "web", Owner: "bob", Project: "p", Mode: sandbox.Interactive, Status: sandbox.Paused, Executions: 2, CreatedAt: at(3), UpdatedAt: at(7)},
		{ID: "d", Name: "web", Owner: "alice", Mode: sandbox.Interactive, Status: sandbox.Deleted, Executions: 3, CreatedAt: at(3), UpdatedAt: at(6)},
		{ID: "e", Owner: "bob", Mode: sandbox.Oneshot, Status: sandbox.Failed, CreatedAt: at(3), UpdatedAt: at(10)},
	} {
		create(t, s, sb)
	}
	type filter = sandbox.SandboxFilter
	for _, c := range []struct {
		f     filter
		want  string
		total int
	}{
		{filter{}, "e d c b a ", 5},
		{filter{Asc: true}, "a b c d e ", 5},
		{filter{SortBy: "created", Asc: true}, "a b c d e ", 5},
		{filter{SortBy: "updated"}, "e a b c d ", 5},
		{filter{SortBy: "updated", Asc: true}, "d c b a e ", 5},
		{filter{SortBy: "name", Asc: true}, "e b a c d ", 5},
		{filter{SortBy: "name"}, "d c a b e ", 5},
		{filter{SortBy: "status", Asc: true}, "d e a c b ", 5},
		{filter{SortBy: "mode", Asc: true}, "a c d b e ", 5},
		{filter{SortBy: "execution_count"}, "d a c b e ", 5},
		{filter{SortBy: "execution_count", Asc: true}, "e b c a d ", 5},

		{filter{Owner: "alice"}, "d b a ", 3},
		{filter{Owner: "nobody"}, "", 0},
		{filter{Owner: "alice' OR 1=1 --"}, "", 0},
		{filter{Name: "web"}, "d c a ", 3},
		{filter{Name: "we"}, "", 0},
		{filter{Project: "p"}, "c a ", 2},
		{filter{Mode: sandbox.Oneshot}, "e b ", 2},
		{filter{Statuses: []sandbox.Status{sandbox.Idle, sandbox.Failed}}, "e a ", 2},
		{filter{LiveOnly: true}, "c b a ", 3},
		{filter{LiveOnly: true, Statuses: []sandbox.Status{sandbox.Idle, sandbox.Failed}}, "a ", 1},
		{filter{LiveOnly: true, Name: "web", Owner: "alice"}, "a ", 1},
		{filter{Owner: "alice", Project: "q", Mode: sandbox.Oneshot, Name: "db", LiveOnly: true, SortBy: "name"}, "b ", 1},

		{filter{Limit: 2}, "e d ", 5},
		{filter{Limit: 2, Offset: 2}, "c b ", 5},
		{filter{Limit: 2, Offset: 4}, "a ", 5},
		{filter{Limit: 2, Offset: 9}, "", 5},
		{filter{Offset: 3}, "b a ", 5},
		{filter{LiveOnly: true, Limit: 1, Asc: true}, "a ", 3},
	} {
		got, total, err := s.Sandboxes(t.Context(), c.f)
		must(t, err)
		if ids(got) != c.want || total != c.total || got == nil {
			t.Errorf("%+v: got %q of %d, want %q of %d", c.f, ids(got), total, c.want, c.total)
		}
	}
	for field, f := range map[string]filter{
		"sortBy": {SortBy: "created_at; DROP TABLE sandboxes"}, "limit": {Limit: -1}, "offset": {Offset: -1},
	} {
		_, _, err := s.Sandboxes(t.Context(), f)
		if e := wantCode(t, err, fault.Invalid); e.Field != field {
			t.Errorf("%+v: field %q", f, e.Field)
		}
	}
}

// TestPagesMeet walks through records that all sort alike.
func TestPagesMeet(t *testing.T) {
	s := openStore(t)
	for i := range 25 {
		create(t, s, newSandbox(fmt.Sprint("sbx_", i*7%25)))
	}
	for _, sort := range []string{"created", "updated", "name", "status", "mode", "execution_count"} {
		for _, asc := range []bool{true, false} {
			var seen []string
			for offset := 0; offset < 25; offset += 4 {
				page, total, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{SortBy: sort, Asc: asc, Limit: 4, Offset: offset})
				if must(t, err); total != 25 {
					t.Fatalf("total %d", total)
				}
				for _, sb := range page {
					seen = append(seen, sb.ID)
				}
			}
			slices.Sort(seen)
			if n := len(slices.Compact(seen)); n != 25 {
				t.Errorf("by %s, ascending %v: the pages hold %d of 25", sort, asc, n)
			}
		}
	}
}

// TestLiveAgrees holds what the schema calls live against the domain.
func TestLiveAgrees(t *testing.T) {
	s := openStore(t)
	for _, st := range allStatuses {
		sb := newSandbox("sbx_" + string(st))
		sb.Status = st
		create(t, s, sb)
	}
	live, _, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{LiveOnly: true})
	must(t, err)
	for _, st := range allStatuses {
		in := slices.ContainsFunc(live, func(sb sandbox.Sandbox) bool { return sb.Status == st })
		if in != st.Live() {
			t.Errorf("%s: the schema says %v, the domain %v", st, in, st.Live())
		}
	}
}

// TestNames: a name is taken while a live sandbox of the owner has it.
func TestNames(t *testing.T) {
	s := openStore(t)
	sb := func(id, owner, name string, st sandbox.Status) sandbox.Sandbox {
		b := newSandbox(id)
		b.Owner, b.Name, b.Status = owner, name, st
		return b
	}
	set := func(id string, change func(*sandbox.Sandbox)) error {
		_, err := s.UpdateSandbox(t.Context(), id, func(b *sandbox.Sandbox) ([]sandbox.Event, error) {
			change(b)
			return []sandbox.Event{{Type: sandbox.EventDestroy}}, nil
		})
		return err
	}
	create(t, s, sb("1", "alice", "web", sandbox.Idle), sb("2", "bob", "web", sandbox.Idle),
		sb("3", "alice", "", sandbox.Idle), sb("4", "alice", "", sandbox.Idle), sb("5", "alice", "web", sandbox.Deleted))

	err := s.CreateSandbox(t.Context(), sb("6", "alice", "web", sandbox.Creating), sandbox.Event{})
	e := wantCode(t, err, fault.Exists)
	if e.Field != "name" || e.Kind != "sandbox" || e.Error() != `name: a sandbox named "web" exists already: delete it first, or choose another name` {
		t.Errorf("got %+v", e)
	}
	_, err = s.Sandbox(t.Context(), "6")
	wantCode(t, err, fault.NotFound)
	if got := checkEvents(t, s, "6"); len(got) != 0 {
		t.Errorf("events of a sandbox that was not made: %v", got)
	}

	wantCode(t, set("3", func(b *sandbox.Sandbox) { b.Name = "web" }), fault.Exists)          // by a new name
	wantCode(t, set("5", func(b *sandbox.Sandbox) { b.Status = sandbox.Idle }), fault.Exists) // by coming back
	if got := len(checkEvents(t, s, "3")); got != 1 {
		t.Errorf("%d events of a change that was not made", got)
	}
	must(t, set("1", func(b *sandbox.Sandbox) { b.Status = sandbox.Terminated }))
	create(t, s, sb("6", "alice", "web", sandbox.Creating))

	e = wantCode(t, s.CreateSandbox(t.Context(), sb("6", "x", "y", sandbox.Idle), sandbox.Event{}), fault.Exists)
	if e.Field != "" || e.Error() != "a sandbox 6 exists already" {
		t.Errorf("got %+v", e)
	}
	create(t, s, newSandbox("7"))
	_, err = s.UpdateSandbox(t.Context(), "7", func(*sandbox.Sandbox) ([]sandbox.Event, error) {
		return []sandbox.Event{{ID: "evt_same"}, {ID: "evt_same"}}, nil
	})
	wantCode(t, err, fault.Exists)
}
