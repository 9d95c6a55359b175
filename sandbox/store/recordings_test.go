package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestRoundTripRecording(t *testing.T) {
	s := openStore(t)
	want := filled[sandbox.Recording](t)
	wantCode(t, s.CreateRecording(t.Context(), want), fault.NotFound) // there is no such sandbox
	create(t, s, newSandbox(want.SandboxID))
	must(t, s.CreateRecording(t.Context(), want))
	wantCode(t, s.CreateRecording(t.Context(), want), fault.Exists)
	got, err := s.Recording(t.Context(), want.ID)
	must(t, err)
	same(t, "created", got, want)

	next := sandbox.Recording{ID: want.ID, SandboxID: want.SandboxID}
	written, err := s.UpdateRecording(t.Context(), want.ID, func(r *sandbox.Recording) error { *r = next; return nil })
	must(t, err)
	same(t, "written", written, next)
	refused := fault.New(fault.State, "no")
	if _, err := s.UpdateRecording(t.Context(), want.ID, func(r *sandbox.Recording) error { r.Bytes = 1; return refused }); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	list, total, err := s.Recordings(t.Context(), sandbox.RecordingFilter{})
	must(t, err)
	same(t, "listed", list, []sandbox.Recording{next})
	same(t, "total", total, 1)
	must(t, s.DeleteRecording(t.Context(), want.ID))
	wantCode(t, s.DeleteRecording(t.Context(), want.ID), fault.NotFound)
	_, err = s.Recording(t.Context(), want.ID)
	wantCode(t, err, fault.NotFound)
	_, err = s.UpdateRecording(t.Context(), want.ID, func(*sandbox.Recording) error { return nil })
	wantCode(t, err, fault.NotFound)
}

func TestRecordings(t *testing.T) {
	s := openStore(t)
	mine, other := newSandbox("sbx_1"), newSandbox("sbx_2")
	mine.Owner, other.Owner = "alice", "bob"
	create(t, s, mine, other)
	for i := range 6 {
		r := sandbox.Recording{ID: fmt.Sprint("rec_", i), SandboxID: "sbx_1", Owner: "root", CreatedAt: epoch.Add(time.Duration(i/2) * time.Second)}
		if i == 3 {
			r.SandboxID = "sbx_2"
		}
		if i > 1 {
			r.EndedAt, r.Complete = epoch.Add(time.Hour), true
		}
		must(t, s.CreateRecording(t.Context(), r))
	}
	for name, c := range map[string]struct {
		f     sandbox.RecordingFilter
		want  string
		total int
	}{
		"all":             {sandbox.RecordingFilter{}, "[rec_5 rec_4 rec_3 rec_2 rec_1 rec_0]", 6},
		"of one":          {sandbox.RecordingFilter{SandboxID: "sbx_1", Limit: 2, Offset: 1}, "[rec_4 rec_2]", 5},
		"of an owner":     {sandbox.RecordingFilter{Owner: "bob"}, "[rec_3]", 1},
		"being made":      {sandbox.RecordingFilter{Open: true}, "[rec_1 rec_0]", 2},
		"from before":     {sandbox.RecordingFilter{Before: epoch.Add(time.Second)}, "[rec_1 rec_0]", 2},
		"nobody's":        {sandbox.RecordingFilter{Owner: "carol"}, "[]", 0},
		"beyond the last": {sandbox.RecordingFilter{Offset: 10}, "[]", 6},
	} {
		list, total, err := s.Recordings(t.Context(), c.f)
		must(t, err)
		ids := []string{}
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		if fmt.Sprint(ids) != c.want || total != c.total {
			t.Errorf("%s: %v of %d, want %s of %d", name, ids, total, c.want, c.total)
		}
	}
	_, _, err := s.Recordings(t.Context(), sandbox.RecordingFilter{Limit: -1})
	wantCode(t, err, fault.Invalid)
	_, _, err = s.Recordings(t.Context(), sandbox.RecordingFilter{Offset: -1})
	wantCode(t, err, fault.Invalid)
}
