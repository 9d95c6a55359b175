package sandbox_test

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// What a member keeps in snapshots, checkpoints, forks and imports is counted
// together, each layer once, and what does not fit leaves nothing behind.
func TestQuotaOfWhatIsSaved(t *testing.T) {
	const ki = 1 << 10
	w := newWorld(t, func(c *sandbox.Config) { c.MemberQuota = sandbox.Quota{SavedBytes: 100 * ki} })
	s := w.create(alice, sandbox.CreateRequest{})
	as := w.engine.As(alice)
	w.write(alice, s.ID, "data", strings.Repeat("x", 40*ki))
	first := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "one"})
	w.checkpoint(s.ID, "two")
	kept := len(w.savedFolders())

	refused := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "and this is 40Ki more; you may keep 100Ki") {
			t.Errorf("%s: %v", what, err)
		}
		if n := len(w.savedFolders()); n != kept {
			t.Errorf("%s left %d folders, want %d", what, n, kept)
		}
	}
	_, err := as.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{Tag: "three"})
	refused("a snapshot", err)
	_, err = as.CreateCheckpoint(t.Context(), s.ID, "three")
	refused("a checkpoint", err)
	_, err = as.Fork(t.Context(), s.ID, sandbox.ForkRequest{})
	refused("a fork", err)

	w.create(alice, sandbox.CreateRequest{Snapshot: first.ID}) // keeps nothing of its own
	if _, err := w.engine.As(admin).CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{Tag: "four"}); err != nil {
		t.Errorf("an admin: %v", err)
	}
	if err := as.DeleteCheckpoint(t.Context(), s.ID, "two"); err != nil {
		t.Fatal(err)
	}
	fork, err := as.Fork(t.Context(), s.ID, sandbox.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = as.CreateCheckpoint(t.Context(), s.ID, "five")
	kept = len(w.savedFolders())
	refused("a checkpoint beside a fork", err)
	if err := as.Delete(t.Context(), fork.ID); err != nil {
		t.Fatal(err)
	}
	w.checkpoint(s.ID, "five")
}

// However many ask at once, no more than the quota is kept.
func TestQuotaOfWhatIsSavedAtOnce(t *testing.T) {
	const ki = 1 << 10
	w := newWorld(t, func(c *sandbox.Config) { c.MemberQuota = sandbox.Quota{SavedBytes: 100 * ki} })
	as := w.engine.As(alice)
	var made atomic.Int32
	var all sync.WaitGroup
	for range 6 {
		s := w.create(alice, sandbox.CreateRequest{})
		w.write(alice, s.ID, "data", strings.Repeat("x", 40*ki))
		all.Go(func() {
			_, err := as.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{Tag: sandbox.NoTag})
			switch {
			case err == nil:
				made.Add(1)
			case !fault.Is(err, fault.Exhausted):
				t.Error(err)
			}
		})
	}
	all.Wait()
	// One that is just being recorded counts twice, so it may be one fewer.
	if n := made.Load(); n < 1 || n > 2 {
		t.Errorf("%d snapshots of 40Ki were kept in 100Ki", n)
	}
}

func TestQuotaOfAnImport(t *testing.T) {
	const ki = 1 << 10
	w := newWorld(t, func(c *sandbox.Config) {
		c.MemberQuota = sandbox.Quota{SavedBytes: 100 * ki}
		c.Images = catalogOf(t, true)
	})
	s := w.create(alice, sandbox.CreateRequest{Runtime: "tiny:1"})
	w.write(alice, s.ID, "data", strings.Repeat("x", 60*ki))
	p := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	var archive bytes.Buffer
	if err := w.engine.As(alice).ExportSnapshot(t.Context(), p.ID, &archive); err != nil {
		t.Fatal(err)
	}
	before := w.savedFolders()
	_, err := w.engine.As(alice).ImportSnapshot(t.Context(), bytes.NewReader(archive.Bytes()), sandbox.SnapshotRequest{Tag: "again"})
	if !fault.Is(err, fault.Exhausted) {
		t.Errorf("a second 60Ki in 100Ki: %v", err)
	}
	if after := w.savedFolders(); len(after) != len(before) {
		t.Errorf("the refused import left %v, before it there was %v", after, before)
	}
	if _, err := w.engine.As(bob).ImportSnapshot(t.Context(), &archive, sandbox.SnapshotRequest{}); err != nil {
		t.Errorf("into an empty quota: %v", err)
	}
}
