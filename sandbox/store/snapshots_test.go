package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// keep records a snapshot with a layer of its own.
func keep(tb testing.TB, s *Store, p sandbox.Snapshot) sandbox.Snapshot {
	tb.Helper()
	if p.Owner == "" {
		p.Owner = "alice"
	}
	p.Layer = "layer_" + p.ID
	must(tb, s.CreateSnapshot(tb.Context(), p, sandbox.Layer{ID: p.Layer, Driver: "fake"}))
	return p
}

func TestRoundTripSnapshot(t *testing.T) {
	s := openStore(t)
	want, l := filled[sandbox.Snapshot](t), filled[sandbox.Layer](t)
	want.Layer = l.ID
	for _, id := range l.Below {
		must(t, s.AddLayer(t.Context(), sandbox.Layer{ID: id}))
	}
	create(t, s, newSandbox(want.SandboxID))
	must(t, s.CreateSnapshot(t.Context(), want, l, sandbox.Event{Type: sandbox.EventSnapshotCreate}))
	got, err := s.Snapshot(t.Context(), want.ID)
	must(t, err)
	same(t, "snapshot", got, want)
	kept, err := s.Layer(t.Context(), l.ID)
	must(t, err)
	same(t, "layer", kept, l)
	page, total, err := s.Snapshots(t.Context(), sandbox.SnapshotFilter{})
	must(t, err)
	same(t, "listed", page, []sandbox.Snapshot{want})
	same(t, "total", total, 1)
	if evs := checkEvents(t, s, want.SandboxID); len(evs) != 2 || evs[1].Type != sandbox.EventSnapshotCreate {
		t.Errorf("events %+v", evs)
	}
	must(t, s.SetLayerDigest(t.Context(), l.ID, "sha256:x"))
	if kept, _ = s.Layer(t.Context(), l.ID); kept.Digest != "sha256:x" {
		t.Errorf("digest %q", kept.Digest)
	}
	wantCode(t, s.SetLayerDigest(t.Context(), "nothing", "x"), fault.NotFound)
	wantCode(t, s.CreateSnapshot(t.Context(), want, sandbox.Layer{ID: "layer_2"}), fault.Exists)
	if _, err := s.Layer(t.Context(), "layer_2"); !fault.Is(err, fault.NotFound) {
		t.Error("the layer of a snapshot that was refused is there")
	}
	_, err = s.Snapshot(t.Context(), "nothing")
	wantCode(t, err, fault.NotFound)
}

func TestRoundTripCheckpoint(t *testing.T) {
	s := openStore(t)
	want := filled[sandbox.Checkpoint](t)
	create(t, s, newSandbox(want.SandboxID))
	must(t, s.CreateCheckpoint(t.Context(), want, sandbox.Layer{ID: want.Layer}, sandbox.Event{Type: sandbox.EventCheckpointCreate}))
	for _, id := range []string{want.SandboxID, ""} {
		got, err := s.Checkpoints(t.Context(), id)
		must(t, err)
		same(t, "checkpoints", got, []sandbox.Checkpoint{want})
	}
	again := want
	again.ID = "other"
	e := wantCode(t, s.CreateCheckpoint(t.Context(), again, sandbox.Layer{ID: "layer_2"}), fault.Exists)
	if e.Field != "name" {
		t.Errorf("field %q", e.Field)
	}
	again.SandboxID = "nowhere"
	wantCode(t, s.CreateCheckpoint(t.Context(), again, sandbox.Layer{ID: "layer_2"}), fault.NotFound)
	must(t, s.DeleteCheckpoint(t.Context(), want.ID, sandbox.Event{Type: sandbox.EventCheckpointDelete}))
	wantCode(t, s.DeleteCheckpoint(t.Context(), want.ID), fault.NotFound)
	if n := len(checkEvents(t, s, want.SandboxID)); n != 3 {
		t.Errorf("%d events", n)
	}
}

func TestSnapshotPages(t *testing.T) {
	s := openStore(t)
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Minute) }
	for _, p := range []sandbox.Snapshot{
		{ID: "a", Name: "one", Tag: "x", SizeBytes: 5, Files: 1, CreatedAt: at(1), SandboxID: "s1"},
		{ID: "b", Name: "two", Owner: "bob", Public: true, SizeBytes: 3, Files: 9, CreatedAt: at(2), Parent: "a"},
		{ID: "c", Name: "one", Public: true, SizeBytes: 4, Files: 2, CreatedAt: at(3), Parent: "b"},
		{ID: "d", Owner: "bob", Tag: "x", CreatedAt: at(3)},
	} {
		if p.SandboxID != "" {
			create(t, s, newSandbox(p.SandboxID))
		}
		keep(t, s, p)
	}
	type filter = sandbox.SnapshotFilter
	for _, c := range []struct {
		f     filter
		want  string
		total int
	}{
		{filter{}, "dcba", 4},
		{filter{Asc: true}, "abcd", 4},
		{filter{SortBy: "name", Asc: true}, "dacb", 4},
		{filter{SortBy: "size"}, "acbd", 4},
		{filter{SortBy: "files"}, "bcad", 4},
		{filter{Owner: "alice"}, "ca", 2},
		{filter{Public: true}, "cb", 2},
		{filter{Owner: "alice", Public: true}, "cba", 3},
		{filter{Tag: "x"}, "da", 2},
		{filter{Tag: "x", Owner: "bob"}, "d", 1},
		{filter{Parent: "a"}, "b", 1},
		{filter{Sandbox: "s1"}, "a", 1},
		{filter{Limit: 2, Offset: 1}, "cb", 4},
	} {
		got, total, err := s.Snapshots(t.Context(), c.f)
		must(t, err)
		ids := ""
		for _, p := range got {
			ids += p.ID
		}
		if ids != c.want || total != c.total {
			t.Errorf("%+v: got %q of %d, want %q of %d", c.f, ids, total, c.want, c.total)
		}
	}
	for field, f := range map[string]filter{"sortBy": {SortBy: "id"}, "limit": {Limit: -1}, "offset": {Offset: -1}} {
		_, _, err := s.Snapshots(t.Context(), f)
		if e := wantCode(t, err, fault.Invalid); e.Field != field {
			t.Errorf("%+v: field %q", f, e.Field)
		}
	}
}

// TestTagsMove drives random creations, moves and deletions against a model:
// who has which tag.
func TestTagsMove(t *testing.T) {
	s := openStore(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	owners, tags := []string{"alice", "bob"}, []string{"", "latest", "v1", "v2"}
	model := map[string]*sandbox.Snapshot{}
	move := func(p *sandbox.Snapshot) {
		for _, o := range model {
			if p.Tag != "" && o != p && o.Owner == p.Owner && o.Tag == p.Tag {
				o.Tag = ""
			}
		}
	}
	var made []string
	for i := range 400 {
		tag := tags[rnd.IntN(len(tags))]
		switch {
		case len(made) < 3 || rnd.IntN(3) == 0:
			p := keep(t, s, sandbox.Snapshot{ID: fmt.Sprint("snp_", i), Owner: owners[rnd.IntN(2)], Tag: tag})
			model[p.ID], made = &p, append(made, p.ID)
			move(&p)
		case rnd.IntN(4) == 0:
			n := rnd.IntN(len(made))
			must(t, s.DeleteSnapshot(t.Context(), made[n]))
			delete(model, made[n])
			made = slices.Delete(made, n, n+1)
		default:
			p := model[made[rnd.IntN(len(made))]]
			p.Tag = tag
			move(p)
			_, err := s.UpdateSnapshot(t.Context(), p.ID, func(p *sandbox.Snapshot) error { p.Tag = tag; return nil })
			must(t, err)
		}
		all, _, err := s.Snapshots(t.Context(), sandbox.SnapshotFilter{})
		must(t, err)
		if len(all) != len(model) {
			t.Fatalf("step %d: %d snapshots, want %d", i, len(all), len(model))
		}
		for _, p := range all {
			if p.Tag != model[p.ID].Tag {
				t.Fatalf("step %d: %s has the tag %q, want %q", i, p.ID, p.Tag, model[p.ID].Tag)
			}
		}
	}
}

// TestLayersInUse: a layer stays while anything names it, and what names it
// cannot be made without it.
func TestLayersInUse(t *testing.T) {
	s := openStore(t)
	add := func(id string, below ...string) {
		must(t, s.AddLayer(t.Context(), sandbox.Layer{ID: id, Below: below}))
	}
	refused := func(id string) {
		t.Helper()
		wantCode(t, s.DeleteLayer(t.Context(), id), fault.State)
	}
	add("l1")
	add("l2", "l1")
	refused("l1")
	wantCode(t, s.AddLayer(t.Context(), sandbox.Layer{ID: "l2"}), fault.Exists)
	wantCode(t, s.AddLayer(t.Context(), sandbox.Layer{ID: "l9", Below: []string{"l8"}}), fault.NotFound)

	sb := newSandbox("sbx_1")
	sb.Layers = []string{"l2", "l1"}
	create(t, s, sb)
	refused("l2")
	missing := newSandbox("sbx_2")
	missing.Layers = []string{"l7"}
	wantCode(t, s.CreateSandbox(t.Context(), missing, sandbox.Event{}), fault.NotFound)

	must(t, s.CreateCheckpoint(t.Context(), sandbox.Checkpoint{ID: "ckpt_1", SandboxID: "sbx_1", Name: "a"}, sandbox.Layer{ID: "", Below: []string{"l2"}}))
	_, err := s.UpdateSandbox(t.Context(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
		sb.Status = sandbox.Deleted
		return nil, nil
	})
	must(t, err)
	refused("l2")
	must(t, s.DeleteCheckpoint(t.Context(), "ckpt_1"))
	must(t, s.DeleteLayer(t.Context(), ""))
	must(t, s.DeleteLayer(t.Context(), "l2"))
	must(t, s.DeleteLayer(t.Context(), "l1"))
	wantCode(t, s.DeleteLayer(t.Context(), "l1"), fault.NotFound)
	all, err := s.Layers(t.Context())
	if must(t, err); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

func TestDeleteSnapshotInUse(t *testing.T) {
	s := openStore(t)
	keep(t, s, sandbox.Snapshot{ID: "snp_1"})
	keep(t, s, sandbox.Snapshot{ID: "snp_2", Parent: "snp_1"})
	keep(t, s, sandbox.Snapshot{ID: "snp_3", Parent: "snp_2"})
	wantCode(t, s.DeleteSnapshot(t.Context(), "snp_1"), fault.State)
	wantCode(t, s.DeleteSnapshot(t.Context(), "snp_1", "snp_2"), fault.State)
	sb := newSandbox("sbx_1")
	sb.SnapshotID = "snp_3"
	create(t, s, sb)
	wantCode(t, s.DeleteSnapshot(t.Context(), "snp_1", "snp_2", "snp_3"), fault.State)
	if _, n, _ := s.Snapshots(t.Context(), sandbox.SnapshotFilter{}); n != 3 {
		t.Fatalf("%d are left after refusals", n)
	}
	_, err := s.UpdateSandbox(t.Context(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
		sb.Status = sandbox.Terminated
		return nil, nil
	})
	must(t, err)
	must(t, s.DeleteSnapshot(t.Context(), "snp_1", "snp_2", "snp_3"))
	wantCode(t, s.DeleteSnapshot(t.Context(), "snp_1"), fault.NotFound)
}
