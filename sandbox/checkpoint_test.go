package sandbox_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func (w *world) checkpoint(ref, name string) sandbox.Checkpoint {
	w.t.Helper()
	c, err := w.engine.As(alice).CreateCheckpoint(w.t.Context(), ref, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func TestCheckpoints(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{Name: "web"})
	w.write(alice, "web", "a", "one")
	first := w.checkpoint("web", "before upgrade")
	w.write(alice, "web", "a", "two")
	w.write(alice, "web", "b", "more")
	second := w.checkpoint("web", "")
	if second.Name == "" || first.Files != 1 || second.Files != 2 || first.SizeBytes != 3 {
		t.Errorf("%+v, %+v", first, second)
	}
	list, err := a.Checkpoints(t.Context(), "web")
	if err != nil || len(list) != 2 || list[0].ID != second.ID {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = a.CreateCheckpoint(t.Context(), "web", "before upgrade")
	if wantCode(t, err, fault.Exists); fault.From(err).Field != "name" {
		t.Errorf("field %q", fault.From(err).Field)
	}
	for _, bad := range []string{"ckpt_x", "a\nb", " a", strings.Repeat("x", 129)} {
		_, err := a.CreateCheckpoint(t.Context(), "web", bad)
		wantCode(t, err, fault.Invalid)
	}
	w.write(alice, "web", "c", "lost")
	for _, step := range []struct{ ref, a, b string }{{"before upgrade", "one", "none"}, {second.ID, "two", "more"}, {first.ID, "one", "none"}} {
		now, err := a.RestoreCheckpoint(t.Context(), "web", step.ref)
		if err != nil || !now.Status.Up() {
			t.Fatalf("%s: %s, %v", step.ref, now.Status, err)
		}
		if x, y, z := w.read(alice, "web", "a"), w.read(alice, "web", "b"), w.read(alice, "web", "c"); x != step.a || y != step.b || z != "none" {
			t.Errorf("after %s it has %q, %q and %q", step.ref, x, y, z)
		}
	}
	for _, ref := range []string{"nothing", "ckpt_aaaaaaaaaaaa", ""} {
		_, err := a.RestoreCheckpoint(t.Context(), "web", ref)
		wantCode(t, err, fault.NotFound)
		wantCode(t, a.DeleteCheckpoint(t.Context(), "web", ref), fault.NotFound)
	}
	b := w.engine.As(bob)
	for _, err := range []error{
		b.DeleteCheckpoint(t.Context(), s.ID, first.ID),
		second2(b.RestoreCheckpoint(t.Context(), s.ID, first.ID)),
		second2(b.Checkpoints(t.Context(), s.ID)),
		second2(b.CreateCheckpoint(t.Context(), s.ID, "x")),
		second2(b.Fork(t.Context(), s.ID, sandbox.ForkRequest{})),
		second2(b.Diff(t.Context(), sandbox.Point{Sandbox: s.ID}, sandbox.Point{Sandbox: s.ID, Checkpoint: first.ID})),
	} {
		if wantCode(t, err, fault.NotFound); !strings.Contains(err.Error(), "no sandbox") {
			t.Errorf("%v", err)
		}
	}
	if err := a.DeleteCheckpoint(t.Context(), "web", "before upgrade"); err != nil {
		t.Fatal(err)
	}
	w.consistent(1)
	w.restart()
	w.consistent(1)
	if _, err := w.engine.As(alice).RestoreCheckpoint(t.Context(), "web", second.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.As(alice).Delete(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	w.consistent(0)
	if evs := strings.Join(w.events(s.ID), " "); strings.Count(evs, "checkpoint:restore") != 4 || strings.Count(evs, "checkpoint:create") != 2 || !strings.Contains(evs, "checkpoint:delete") {
		t.Errorf("events %s", evs)
	}
}

func second2[T any](_ T, err error) error { return err }

// TestRestoreEndsWhatRuns: an execution and a session learn why they ended.
func TestRestoreEndsWhatRuns(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{})
	w.checkpoint(s.ID, "c")
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := a.Start(t.Context(), s.ID, guest.Command{Args: []string{"sleep", "1000"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := session.Wait(t.Context()); ended <- err }()
	now, err := a.RestoreCheckpoint(t.Context(), s.ID, "c")
	if err != nil || now.Status != sandbox.Idle {
		t.Fatalf("%s, %v", now.Status, err)
	}
	if x, err = a.Execution(t.Context(), x.ID, time.Minute); err != nil || x.Status != sandbox.ExecCancelled || x.Error != "the checkpoint c was restored" {
		t.Errorf("%+v, %v", x, err)
	}
	if err := <-ended; !fault.Is(err, fault.State) || !strings.Contains(err.Error(), "the checkpoint c was restored") {
		t.Errorf("the session ended with %v", err)
	}
	if x, out := w.exec(alice, s.ID, "echo", "hi"); x.Status != sandbox.ExecCompleted || out != "hi\n" {
		t.Errorf("%+v %q", x, out)
	}
}

// TestRestorePaused restores what sleeps: it sleeps on, and what it had in
// memory is gone.
func TestRestorePaused(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{})
	w.write(alice, s.ID, "a", "one")
	w.checkpoint(s.ID, "c")
	w.write(alice, s.ID, "a", "two")
	if _, err := a.Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	asleep := w.checkpoint(s.ID, "asleep")
	now, err := a.RestoreCheckpoint(t.Context(), s.ID, "c")
	if err != nil || now.Status != sandbox.Paused || now.Memory {
		t.Fatalf("%s, memory %v, %v", now.Status, now.Memory, err)
	}
	if got := w.read(alice, s.ID, "a"); got != "one" {
		t.Errorf("resumed, it has %q", got)
	}
	if _, err := a.RestoreCheckpoint(t.Context(), s.ID, asleep.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.read(alice, s.ID, "a"); got != "two" {
		t.Errorf("it has %q", got)
	}
}

// TestRestoreFails: the sandbox has its old files and is up again.
func TestRestoreFails(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{})
	w.checkpoint(s.ID, "c")
	w.write(alice, s.ID, "a", "two")
	w.host.FailNext(fake.Restore, fault.New(fault.Exhausted, "the disk is full"))
	_, err := a.RestoreCheckpoint(t.Context(), s.ID, "c")
	wantCode(t, err, fault.Exhausted)
	if got := w.read(alice, s.ID, "a"); got != "two" {
		t.Errorf("it has %q", got)
	}
	w.host.FailNext(fake.Stop, fault.New(fault.Unavailable, "no power"))
	_, err = a.RestoreCheckpoint(t.Context(), s.ID, "c")
	wantCode(t, err, fault.Unavailable)
	if got := w.read(alice, s.ID, "a"); got != "two" {
		t.Errorf("it has %q", got)
	}
}

func TestFork(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{
		Name: "web", Description: "d", Project: "p", Env: map[string]string{"SECRET": "x"}, Limits: sandbox.Limits{MemoryBytes: 64 << 20},
		Timeouts: sandbox.Timeouts{Idle: time.Hour},
	})
	w.write(alice, "web", "a", "one")
	first, err := a.Fork(t.Context(), "web", sandbox.ForkRequest{Name: "web2", Env: map[string]string{"B": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	if first.Parent != s.ID || first.Status != sandbox.Idle || first.Description != "d" || first.Project != "p" || first.Limits != s.Limits || first.Timeouts != s.Timeouts ||
		len(first.Env) != 1 || first.Env["B"] != "2" || first.Owner != "alice" || first.Runtime.ID != s.Runtime.ID {
		t.Errorf("%+v", first)
	}
	w.write(alice, "web", "a", "two")
	if got := w.read(alice, "web2", "a"); got != "one" {
		t.Errorf("the fork has %q", got)
	}
	_, err = a.Fork(t.Context(), "web", sandbox.ForkRequest{Name: "web2"})
	wantCode(t, err, fault.Exists)
	for _, r := range []sandbox.ForkRequest{{Name: "A b"}, {Limits: sandbox.Limits{MemoryBytes: 1}}, {Env: map[string]string{"=": ""}}} {
		_, err = a.Fork(t.Context(), "web", r)
		wantCode(t, err, fault.Invalid)
	}
	// Of one that sleeps, and of a fork, with its variables.
	if _, err := a.Pause(t.Context(), "web2"); err != nil {
		t.Fatal(err)
	}
	again, err := a.Fork(t.Context(), "web2", sandbox.ForkRequest{InheritEnv: true, Timeouts: &sandbox.Timeouts{}})
	if err != nil || again.Env["B"] != "2" || again.Timeouts.Idle != 0 || len(again.Layers) != 2 {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, out := w.exec(alice, again.ID, "sh", "-c", "cat a; echo $B$SECRET"); out != "one2\n" {
		t.Errorf("it says %q", out)
	}
	w.consistent(2)
	if err := a.Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if err := a.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	w.consistent(2)
	w.restart()
	if got := w.read(alice, again.ID, "a"); got != "one" {
		t.Errorf("without its parents it has %q", got)
	}
	for _, c := range []struct{ id, want string }{{s.ID, "fork"}, {first.ID, "fork"}} {
		if evs := strings.Join(w.events(c.id), " "); !strings.Contains(evs, c.want) {
			t.Errorf("events %s", evs)
		}
	}
	if err := w.engine.As(alice).Delete(t.Context(), again.ID); err != nil {
		t.Fatal(err)
	}
	w.consistent(0)
}

// TestForkFails: only a record of the failure stays.
func TestForkFails(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	for _, op := range []fake.Op{fake.Create, fake.Start} {
		w.host.FailNext(op, fault.New(fault.Exhausted, "no room"))
		_, err := w.engine.As(alice).Fork(t.Context(), s.ID, sandbox.ForkRequest{Name: "web2"})
		wantCode(t, err, fault.Exhausted)
		w.consistent(0)
	}
	if _, n, err := w.engine.As(alice).List(t.Context(), sandbox.ListRequest{LiveOnly: true}); err != nil || n != 1 {
		t.Errorf("%d are live, %v", n, err)
	}
}

func TestDiff(t *testing.T) {
	w := newWorld(t)
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{})
	for path, content := range map[string]string{"same": "x", "changed": "a\nb\nc\n", "gone": "x", "d/e/f": "deep"} {
		if _, out := w.exec(alice, s.ID, "mkdir", "-p", "d/e"); out != "" {
			t.Fatal(out)
		}
		w.write(alice, s.ID, path, content)
	}
	p := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	w.checkpoint(s.ID, "c")
	if x, _ := w.exec(alice, s.ID, "sh", "-c", "rm -r gone d; printf 'a\nB\nc\n' > changed; echo y > new; chmod 700 same; ln -s new link"); x.Status != sandbox.ExecCompleted {
		t.Fatal(x)
	}
	const want = "~changed:content +link -d -d/e -d/e/f -gone +new ~same:mode "
	sorted := func(s string) string { f := strings.Fields(s); slices.Sort(f); return strings.Join(f, " ") }
	for name, from := range map[string]sandbox.Point{"snapshot": {Snapshot: p.ID}, "tag": {Snapshot: "latest"}, "checkpoint": {Sandbox: s.ID, Checkpoint: "c"}} {
		changes, err := a.Diff(t.Context(), from, sandbox.Point{Sandbox: s.ID})
		if err != nil {
			t.Fatal(name, err)
		}
		var got bytes.Buffer
		for _, c := range changes {
			got.WriteString(map[sandbox.ChangeKind]string{sandbox.Added: "+", sandbox.Changed: "~", sandbox.Removed: "-"}[c.Kind])
			got.WriteString(strings.TrimPrefix(c.Path, "/workspace/"))
			if c.Why != "" {
				got.WriteString(":" + c.Why)
			}
			got.WriteString(" ")
		}
		if sorted(got.String()) != sorted(want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got.String(), want)
		}
		text, err := a.DiffFile(t.Context(), from, sandbox.Point{Sandbox: s.ID}, "changed")
		if err != nil || !strings.Contains(text, "\n-b\n+B\n") || !strings.Contains(text, "--- "+from.String()+":/workspace/changed") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	here := sandbox.Point{Sandbox: s.ID}
	if changes, err := a.Diff(t.Context(), here, here); err != nil || len(changes) != 0 {
		t.Errorf("it differs from itself: %v, %v", changes, err)
	}
	changes, err := a.Diff(t.Context(), sandbox.Point{Runtime: "tiny:1"}, here)
	if err != nil || len(changes) < 4 {
		t.Errorf("%v, %v", changes, err)
	}
	if text, err := a.DiffFile(t.Context(), sandbox.Point{Snapshot: p.ID}, here, "/workspace/new"); err != nil || !strings.Contains(text, "--- /dev/null") {
		t.Errorf("%q, %v", text, err)
	}
	_, err = a.DiffFile(t.Context(), sandbox.Point{Snapshot: p.ID}, here, "nowhere")
	wantCode(t, err, fault.NotFound)
	for _, bad := range []string{"", "../x", "a\x00"} {
		_, err = a.DiffFile(t.Context(), here, here, bad)
		wantCode(t, err, fault.Invalid)
	}
	for _, bad := range []sandbox.Point{{}, {Checkpoint: "c"}, {Runtime: "a", Sandbox: "b"}} {
		_, err = a.Diff(t.Context(), bad, here)
		wantCode(t, err, fault.Invalid)
	}
	w.consistent(2) // what was saved to be compared is gone
}
