package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
	catalog "github.com/sandgate/sandgate/sandbox/image"
	"github.com/sandgate/sandgate/sandbox/store"
)

// whole is a server without doors: engine, records, images and this driver.
type whole struct {
	t testing.TB
	*sandbox.Actor
}

func newWhole(t testing.TB) whole {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := New(Config{StateDir: filepath.Join(dir, "gvisor"), Log: log, Executable: gvisortest.Executable(t)})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	needSandboxes(t, d)
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "state", "state.db")})
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	images, err := catalog.New(catalog.Config{Dir: filepath.Join(dir, "layers"), BaseImage: catalog.NoImage})
	must(t, err)
	t.Cleanup(func() { must(t, images.Close()) })
	e, err := sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: d, Store: st, Images: images, Guest: driver.Guest{Path: drivertest.BuildGuest(t)},
		OutputDir: filepath.Join(dir, "executions"), DefaultRuntime: "host:latest", Log: log,
	})
	must(t, err)
	w := whole{t, e.As(keys.Principal{ID: "alice", Role: keys.Member})}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		live, _, err := w.List(ctx, sandbox.ListRequest{LiveOnly: true})
		must(t, err)
		for _, s := range live {
			must(t, w.Delete(ctx, s.ID))
		}
		must(t, e.Close())
	})
	_, err = e.Reconcile(t.Context())
	must(t, err)
	return w
}

func (w whole) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v (%v)", err, fault.From(err).Cause)
	}
}

// sh runs a script and returns what it prints.
func (w whole) sh(ref, script string) string {
	w.t.Helper()
	x, err := w.Execute(w.t.Context(), ref, sandbox.ExecRequest{Command: []string{"sh", "-c", script + " 2>&1"}})
	w.ok(err)
	x, err = w.Execution(w.t.Context(), x.ID, time.Minute)
	w.ok(err)
	var out bytes.Buffer
	w.ok(w.Output(w.t.Context(), x.ID, sandbox.Stdout, &out))
	if x.Status != sandbox.ExecCompleted {
		w.t.Fatalf("%s: %s %s", script, x.Status, out.String())
	}
	return out.String()
}

// TestWholeLife takes the files of a sandbox through all that can become of
// them, on this machine's own programs.
func TestWholeLife(t *testing.T) {
	w := newWhole(t)
	ctx := t.Context()
	made, err := w.Create(ctx, sandbox.CreateRequest{Name: "one"})
	w.ok(err)
	w.sh("one", "echo first > a; mkdir -p /opt/tool /usr/local/share/x; echo 1 > /opt/tool/v; echo x > /usr/local/share/x/y; rm /usr/bin/env; ln -s a link; chmod 640 a")
	p, err := w.CreateSnapshot(ctx, "one", sandbox.SnapshotRequest{Name: "tools"})
	w.ok(err)
	two, err := w.Create(ctx, sandbox.CreateRequest{Name: "two", Snapshot: "latest"})
	w.ok(err)
	if two.Sandbox.SnapshotID != p.ID {
		t.Errorf("%+v", two.Sandbox)
	}
	const look = "cat a link /opt/tool/v /usr/local/share/x/y; stat -c %a a; test -e /usr/bin/env || echo gone"
	const want = "first\nfirst\n1\nx\n640\ngone\n"
	if got := w.sh("two", look); got != want {
		t.Errorf("made from a snapshot it has %q", got)
	}
	w.sh("two", "echo second > a; rm -r /opt/tool; echo b > b")
	c, err := w.CreateCheckpoint(ctx, "two", "")
	w.ok(err)
	w.sh("two", "echo third > a; rm b; mkdir -p /opt/tool/deep")
	_, err = w.RestoreCheckpoint(ctx, "two", c.Name)
	w.ok(err)
	if got := w.sh("two", "cat a b; ls /opt"); got != "second\nb\n" {
		t.Errorf("restored it has %q", got)
	}
	three, err := w.Fork(ctx, "two", sandbox.ForkRequest{Name: "three"})
	w.ok(err)
	w.sh("two", "echo fourth > a")
	if got := w.sh("three", "cat a b link; ls /opt; test -e /usr/bin/env || echo gone"); got != "second\nb\nsecond\ngone\n" {
		t.Errorf("the fork has %q", got)
	}
	w.changes(sandbox.Point{Snapshot: p.ID}, sandbox.Point{Sandbox: "three"}, "-/opt/tool -/opt/tool/v +/workspace/b ~/workspace/a")
	w.changes(sandbox.Point{Sandbox: "two", Checkpoint: c.ID}, sandbox.Point{Sandbox: "two"}, "~/workspace/a")
	w.changes(sandbox.Point{Runtime: "host:latest"}, sandbox.Point{Snapshot: p.ID}, "+/opt/tool +/opt/tool/v -/usr/bin/env +/usr/local/share/x +/usr/local/share/x/y +/workspace/a +/workspace/link")
	text, err := w.DiffFile(ctx, sandbox.Point{Snapshot: p.ID}, sandbox.Point{Sandbox: "two"}, "a")
	if err != nil || !strings.Contains(text, "-first\n+fourth\n") {
		t.Errorf("%q, %v", text, err)
	}

	// One that sleeps is kept and not woken.
	paused, err := w.Pause(ctx, "three")
	w.ok(err)
	asleep, err := w.CreateSnapshot(ctx, "three", sandbox.SnapshotRequest{Tag: "asleep"})
	w.ok(err)
	twin, err := w.Fork(ctx, "three", sandbox.ForkRequest{})
	w.ok(err)
	if now, err := w.Get(ctx, "three"); err != nil || now.Status != sandbox.Paused || now.Memory != paused.Memory {
		t.Errorf("it is %s, memory %v, %v", now.Status, now.Memory, err)
	}
	if got := w.sh(twin.ID, "cat a b"); got != "second\nb\n" {
		t.Errorf("the fork of one that sleeps has %q", got)
	}
	w.changes(sandbox.Point{Snapshot: asleep.ID}, sandbox.Point{Sandbox: twin.ID}, "")
	w.ok(w.Delete(ctx, twin.ID))
	_, err = w.Resume(ctx, "three")
	w.ok(err)
	w.ok(w.DeleteSnapshot(ctx, "asleep", false))

	// Out of this server and in again, while the first sandboxes are gone.
	w.ok(w.Delete(ctx, made.Sandbox.ID))
	w.ok(w.Delete(ctx, "two"))
	child, err := w.CreateSnapshot(ctx, three.ID, sandbox.SnapshotRequest{Tag: "child"})
	w.ok(err)
	var archive bytes.Buffer
	w.ok(w.ExportSnapshot(ctx, child.ID, &archive))
	w.ok(w.Delete(ctx, "three"))
	w.ok(w.DeleteSnapshot(ctx, p.ID, true))
	back, err := w.ImportSnapshot(ctx, &archive, sandbox.SnapshotRequest{})
	w.ok(err)
	if back.Tag != "child" || back.Runtime.Name != "host:latest" {
		t.Errorf("%+v", back)
	}
	_, err = w.Create(ctx, sandbox.CreateRequest{Name: "four", Snapshot: "child"})
	w.ok(err)
	if got := w.sh("four", "cat a b link; ls /opt; test -e /usr/bin/env || echo gone"); got != "second\nb\nsecond\ngone\n" {
		t.Errorf("imported it has %q", got)
	}
}

// changes compares what a diff says with the paths that must be in it.
func (w whole) changes(from, to sandbox.Point, want string) {
	w.t.Helper()
	list, err := w.Diff(w.t.Context(), from, to)
	w.ok(err)
	var got []string
	for _, c := range list {
		got = append(got, map[sandbox.ChangeKind]string{sandbox.Added: "+", sandbox.Changed: "~", sandbox.Removed: "-"}[c.Kind]+c.Path)
	}
	fields := strings.Fields(want)
	slices.Sort(got)
	slices.Sort(fields)
	if !slices.Equal(got, fields) {
		w.t.Errorf("%s to %s:\n got %v\nwant %v", from, to, got, fields)
	}
}

// BenchmarkEngineSnapshot measures a snapshot of a running sandbox and the
// creation of one from it, until its first command has answered.
func BenchmarkEngineSnapshot(b *testing.B) {
	for _, megabytes := range []int{10, 500} {
		b.Run(fmt.Sprint(megabytes, "MB"), func(b *testing.B) {
			w := newWhole(b)
			_, err := w.Create(b.Context(), sandbox.CreateRequest{Name: "one"})
			w.ok(err)
			w.sh("one", fmt.Sprintf("for i in $(seq %d); do head -c 1000000 /dev/urandom > f$i; done; sync", megabytes))
			var snapshot, create, fork, restore time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				p, err := w.CreateSnapshot(b.Context(), "one", sandbox.SnapshotRequest{})
				w.ok(err)
				snapshot += time.Since(began)
				began = time.Now()
				made, err := w.Create(b.Context(), sandbox.CreateRequest{Snapshot: p.ID})
				w.ok(err)
				w.sh(made.Sandbox.ID, "true")
				create += time.Since(began)
				began = time.Now()
				forked, err := w.Fork(b.Context(), "one", sandbox.ForkRequest{})
				w.ok(err)
				fork += time.Since(began)
				c, err := w.CreateCheckpoint(b.Context(), "one", "")
				w.ok(err)
				began = time.Now()
				_, err = w.RestoreCheckpoint(b.Context(), "one", c.ID)
				w.ok(err)
				restore += time.Since(began)
				for _, id := range []string{made.Sandbox.ID, forked.ID} {
					w.ok(w.Delete(b.Context(), id))
				}
				w.ok(w.DeleteCheckpoint(b.Context(), "one", c.ID))
				w.ok(w.DeleteSnapshot(b.Context(), p.ID, false))
			}
			for name, d := range map[string]time.Duration{"snapshot-ms": snapshot, "create-ms": create, "fork-ms": fork, "restore-ms": restore} {
				b.ReportMetric(float64(d.Milliseconds())/float64(b.N), name)
			}
		})
	}
}
