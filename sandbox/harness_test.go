package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/store"
)

// world is one engine on a real store and the fake driver's host. restart is a
// server that dies and comes again.
type world struct {
	t      *testing.T
	dir    string
	host   *fake.Host
	engine *sandbox.Engine
	store  *store.Store
	config func(*sandbox.Config)
	// unsupported is what the driver cannot do, by feature.
	unsupported map[string]string
	now         *clock
}

var (
	admin = keys.Principal{ID: "root", Role: keys.Admin}
	alice = keys.Principal{ID: "alice", Role: keys.Member}
	bob   = keys.Principal{ID: "bob", Role: keys.Member}
)

func newWorld(t *testing.T, config ...func(*sandbox.Config)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), host: fake.NewHost(), now: &clock{at: time.Now()}}
	if len(config) > 0 {
		w.config = config[0]
	}
	w.open()
	t.Cleanup(func() {
		w.close()
		if err := w.host.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) open() sandbox.Reconciliation {
	w.t.Helper()
	ctx := w.t.Context()
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(w.dir, "state.db")})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := sandbox.Config{
		Driver: fake.New(fake.Config{Host: w.host, Unsupported: w.unsupported}), Store: st, Images: images{dir: w.t.TempDir()},
		Guest: driver.Guest{Path: guestProgram(w.t)}, OutputDir: filepath.Join(w.dir, "executions"),
		DefaultRuntime: "tiny:1", Now: w.now.Now,
	}
	if w.config != nil {
		w.config(&cfg)
	}
	e, err := sandbox.NewEngine(ctx, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.engine, w.store = e, st
	found, err := e.Reconcile(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) close() {
	w.engine.Close()
	w.store.Close()
}

func (w *world) restart() sandbox.Reconciliation {
	w.t.Helper()
	w.close()
	return w.open()
}

func (w *world) create(who keys.Principal, r sandbox.CreateRequest) sandbox.Sandbox {
	w.t.Helper()
	made, err := w.engine.As(who).Create(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return made.Sandbox
}

// exec runs a command to its end and returns its record and output.
func (w *world) exec(who keys.Principal, ref string, args ...string) (sandbox.Execution, string) {
	w.t.Helper()
	a := w.engine.As(who)
	x, err := a.Execute(w.t.Context(), ref, sandbox.ExecRequest{Command: args})
	if err != nil {
		w.t.Fatal(err)
	}
	x, err = a.Execution(w.t.Context(), x.ID, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	return x, w.output(who, x.ID, sandbox.Stdout)
}

func (w *world) output(who keys.Principal, id string, s sandbox.Stream) string {
	w.t.Helper()
	var b bytes.Buffer
	if err := w.engine.As(who).Output(w.t.Context(), id, s, &b); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// status waits until the sandbox has the status, or fails the test.
func (w *world) status(id string, want sandbox.Status) sandbox.Sandbox {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	s, err := w.engine.As(admin).WaitStatus(ctx, id, want)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.Status != want {
		w.t.Fatalf("sandbox %s is %s (%s), want %s", id, s.Status, s.StatusReason, want)
	}
	return s
}

func (w *world) events(id string) []string {
	w.t.Helper()
	evs, err := w.engine.As(admin).Events(w.t.Context(), id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var types []string
	for i, ev := range evs {
		if ev.Seq != int64(i+1) {
			w.t.Errorf("event %d has number %d: there is a gap", i+1, ev.Seq)
		}
		types = append(types, string(ev.Type))
	}
	return types
}

func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != code {
		t.Fatalf("error %v has code %q, want %q", err, got, code)
	}
}

// images provides one runtime that is an empty folder.
type images struct{ dir string }

func (i images) Runtimes(context.Context) ([]sandbox.Runtime, error) {
	return []sandbox.Runtime{{ID: "srt_tiny", Name: "tiny:1", Ready: true}}, nil
}

func (i images) Provide(_ context.Context, name string, _ func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if name != "tiny:1" && name != "srt_tiny" {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.New(fault.NotFound, "there is no runtime %q", name).About("runtime")
	}
	return sandbox.Runtime{ID: "srt_tiny", Name: "tiny:1"}, sandbox.Rootfs{Layers: []string{i.dir}}, nil
}

func (i images) ProvideDigest(context.Context, sandbox.RuntimeRef) (sandbox.Rootfs, error) {
	return sandbox.Rootfs{Layers: []string{i.dir}}, nil
}

// guestProgram stands in for the program; the fake driver never runs it.
func guestProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(path, []byte("#!/bin/false\n"), 0o555); err != nil {
		t.Fatal(err)
	}
	return path
}

// clock is a clock that tests turn.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond)
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
