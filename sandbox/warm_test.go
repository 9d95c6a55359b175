package sandbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
)

// keepWarm runs KeepWarm until the test, or the server's life, ends.
func (w *world) keepWarm() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var work sync.WaitGroup
	e := w.engine
	work.Go(func() { e.KeepWarm(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
}

// onHost waits until the driver has n sandboxes.
func (w *world) onHost(n int) {
	w.t.Helper()
	d := fake.New(fake.Config{Host: w.host})
	limit := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := d.List(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list) == n {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("the driver has %d sandboxes, want %d", len(list), n)
		}
	}
}

func TestWarm(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.Warm = []sandbox.Warm{{Count: 2}} })
	stop := w.keepWarm()
	t.Cleanup(func() { stop() })
	w.onHost(2)
	if list, _, err := w.engine.As(admin).List(t.Context(), sandbox.ListRequest{}); err != nil || len(list) != 0 {
		t.Fatalf("what is only kept ready is listed: %v, %v", list, err)
	}

	// Hold the making of others back: what comes now was ready.
	gate := w.host.Hold(fake.Create)
	s := w.create(alice, sandbox.CreateRequest{Files: []sandbox.File{{Path: "f", Content: []byte("x")}}})
	if _, out := w.exec(alice, s.ID, "cat", "f"); out != "x" {
		t.Errorf("file holds %q", out)
	}
	if got := w.events(s.ID); got[0] != "create" || got[1] != "lifecycle:started" {
		t.Errorf("events %v", got)
	}
	gate.Open()
	w.onHost(3) // it was replaced

	// A dead one is not handed out.
	d := fake.New(fake.Config{Host: w.host})
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range list {
		if st.ID != s.ID {
			w.host.Kill(st.ID)
		}
	}
	again := w.create(alice, sandbox.CreateRequest{})
	if x, _ := w.exec(alice, again.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("command in a sandbox made when the ready ones had died: %+v", x)
	}
	// One with a name or other limits is made for the purpose.
	named := w.create(alice, sandbox.CreateRequest{Name: "web", Limits: sandbox.Limits{MemoryBytes: 64 << 20}})
	if got := w.host.Spec(named.ID).Hostname; got != "web" {
		t.Errorf("host name %q", got)
	}

	// The server's end removes what nobody has asked for.
	stop()
	w.restart()
	w.onHost(3)
	stop = w.keepWarm()
	w.onHost(5)
	// Its death leaves that to the next one.
	stop()
	w.host.FailNext(fake.Remove, context.Canceled)
	w.host.FailNth(fake.Remove, 2, context.Canceled)
	w.close()
	w.onHost(5)
	w.open()
	w.onHost(3)
}
