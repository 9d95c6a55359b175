package sandbox_test

import (
	"strings"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// recordedAs is recorded for a session of somebody else's.
func (w *world) recordedAs(who keys.Principal, box sandbox.Sandbox) *taped {
	w.t.Helper()
	x := w.recorded(box)
	_, err := w.store.UpdateRecording(w.t.Context(), x.session.Recording, func(r *sandbox.Recording) error {
		r.Owner = who.ID
		return nil
	})
	must(w.t, err)
	return x
}

// Who prints a lot loses recordings of their own, and nobody else loses one that
// is within an equal share: neither to what is complete nor to what is being made.
func TestNobodyLosesRecordingsToOthers(t *testing.T) {
	const unit = 64 << 10
	trail := new(auditTrail)
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.RecordingsMax, cfg.AuditSink = 64*unit, trail.write })
	box := w.create(alice, sandbox.CreateRequest{Project: "web"})
	is := func(x *taped, there bool, what string) {
		t.Helper()
		_, err := w.engine.As(admin).Recording(t.Context(), x.session.Recording)
		if there && err != nil || !there && !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: there should be %t: %v", what, there, err)
		}
	}
	theirs := w.recordedAs(bob, box) // the oldest of all
	theirs.print(strings.Repeat("b", 10*unit))
	theirs.end()
	var mine []*taped
	for range 5 {
		x := w.recordedAs(alice, box)
		x.print(strings.Repeat("a", 20*unit))
		w.written(x.session.Recording, 20*unit)
		x.end()
		mine = append(mine, x)
	}
	is(theirs, true, "bob's")
	is(mine[0], false, "the hog's first")
	is(mine[4], true, "the hog's last")
	// One that is made and fills the space takes the hog's others and no more.
	hog := w.recordedAs(alice, box)
	for range 100 {
		hog.print(strings.Repeat("h", unit))
	}
	hog.end()
	is(theirs, true, "bob's")
	is(mine[4], false, "the hog's last")
	for _, r := range trail.of("recording remove") {
		if r.Kind != sandbox.AuditChange || r.Owner != "alice" || r.Sandbox != box.ID || r.Reason == "" || r.Target == "" {
			t.Errorf("told %+v", r)
		}
	}
	if n := len(trail.of("recording remove")); n < 5 {
		t.Errorf("%d removals are told", n)
	}
}
