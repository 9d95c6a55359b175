package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Hour) }

func TestRoundTripSession(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	create(t, s, newSandbox("sbx_1"))
	full := sandbox.Session{
		ID: "ses_1", SandboxID: "sbx_1", Name: "main", Owner: "alice", ProcessID: "proc_1", Command: "vim ünï\x00'\"", User: "dev",
		Status: sandbox.SessionDetached, Recording: "rec_1", Exit: &guest.Exit{Code: 3, Signal: "TERM", CoreDumped: true}, Reason: "r",
		CreatedAt: at(1), DetachedAt: at(2), EndedAt: at(3), ActiveAt: at(4),
	}
	bare := sandbox.Session{ID: "ses_2", SandboxID: "sbx_1"}
	for _, want := range []sandbox.Session{full, bare} {
		must(t, s.CreateSession(ctx, want, sandbox.Event{Type: "session:start"}))
		got, err := s.Session(ctx, want.ID)
		must(t, err)
		same(t, "created", got, want)
	}
	// Everything set becomes empty and back.
	for _, next := range []sandbox.Session{{ID: "ses_1", SandboxID: "sbx_1", Name: "x"}, full} {
		written, err := s.UpdateSession(ctx, "ses_1", func(n *sandbox.Session) ([]sandbox.Event, error) {
			*n = next
			return []sandbox.Event{{Type: "session:detach"}}, nil
		})
		must(t, err)
		same(t, "written", written, next)
		got, err := s.Session(ctx, "ses_1")
		must(t, err)
		same(t, "updated", got, next)
	}
	if events := checkEvents(t, s, "sbx_1"); len(events) != 5 || events[4].Type != "session:detach" {
		t.Errorf("events %+v", events)
	}
	refused := fault.New(fault.State, "no")
	if _, err := s.UpdateSession(ctx, "ses_1", func(n *sandbox.Session) ([]sandbox.Event, error) { n.Name = "y"; return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	if got, err := s.Session(ctx, "ses_1"); err != nil || got.Name != "main" {
		t.Errorf("after a refusal: %+v, %v", got, err)
	}
	_, err := s.Session(ctx, "ses_none")
	wantCode(t, err, fault.NotFound)
	_, err = s.UpdateSession(ctx, "ses_none", nil)
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.CreateSession(ctx, sandbox.Session{ID: "ses_3", SandboxID: "sbx_none"}), fault.NotFound)
}

// A name is free again when its session has ended.
func TestSessionNames(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	create(t, s, newSandbox("sbx_1"), newSandbox("sbx_2"))
	add := func(id, box, name string, status sandbox.SessionStatus) error {
		return s.CreateSession(ctx, sandbox.Session{ID: id, SandboxID: box, Name: name, Status: status, CreatedAt: epoch})
	}
	must(t, add("ses_1", "sbx_1", "main", sandbox.SessionAttached))
	wantCode(t, add("ses_1", "sbx_1", "other", sandbox.SessionAttached), fault.Exists)
	if e := wantCode(t, add("ses_2", "sbx_1", "main", sandbox.SessionDetached), fault.Exists); e.Field != "name" {
		t.Errorf("field %q", e.Field)
	}
	must(t, add("ses_2", "sbx_2", "main", sandbox.SessionDetached))
	must(t, add("ses_3", "sbx_1", "second", sandbox.SessionDetached))
	rename := func(n *sandbox.Session) ([]sandbox.Event, error) { n.Name = "main"; return nil, nil }
	_, err := s.UpdateSession(ctx, "ses_3", rename)
	if e := wantCode(t, err, fault.Exists); e.Field != "name" {
		t.Errorf("field %q", e.Field)
	}
	_, err = s.UpdateSession(ctx, "ses_1", func(n *sandbox.Session) ([]sandbox.Event, error) {
		n.Status = sandbox.SessionEnded
		return nil, nil
	})
	must(t, err)
	_, err = s.UpdateSession(ctx, "ses_3", rename)
	must(t, err)

	for _, c := range []struct {
		f    sandbox.SessionFilter
		want string
	}{
		{sandbox.SessionFilter{}, "[ses_3 ses_2 ses_1]"},
		{sandbox.SessionFilter{LiveOnly: true}, "[ses_3 ses_2]"},
		{sandbox.SessionFilter{SandboxID: "sbx_1"}, "[ses_3 ses_1]"},
		{sandbox.SessionFilter{SandboxID: "sbx_1", Name: "main", LiveOnly: true}, "[ses_3]"},
		{sandbox.SessionFilter{Limit: 1}, "[ses_3]"},
		{sandbox.SessionFilter{Name: "none"}, "[]"},
	} {
		list, err := s.Sessions(ctx, c.f)
		must(t, err)
		ids := []string{}
		for _, n := range list {
			ids = append(ids, n.ID)
		}
		if fmt.Sprint(ids) != c.want {
			t.Errorf("%+v: %v, want %s", c.f, ids, c.want)
		}
	}
	_, err = s.Sessions(ctx, sandbox.SessionFilter{Limit: -1})
	wantCode(t, err, fault.Invalid)
}
