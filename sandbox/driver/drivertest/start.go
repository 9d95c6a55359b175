package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func startTests() []test {
	return []test{
		{name: "Start/Twice", run: testStartTwice},
		{name: "Start/Cancelled", run: testStartCancelled},
		{name: "Start/Concurrent", run: testStartConcurrent},
	}
}

func testStartTwice(t *testing.T, e *env) {
	b := e.boot(t)
	e.wantState(t, b.id, driver.Running)
	boot := b.conn.Hello().BootID
	if boot == "" {
		t.Error("the guest has no boot id")
	}
	if err := e.d.Start(ctx(t), b.id); err != nil {
		t.Errorf("start what runs: %v", err)
	}
	b.ping(t)
	if again := connect(t, e.d, b.id).Hello().BootID; again != boot {
		t.Errorf("starting what runs booted it anew: %s, %s", boot, again)
	}
}

func testStartCancelled(t *testing.T, e *env) {
	id := e.create(t)
	done, cancel := context.WithCancel(ctx(t))
	cancel()
	wantCode(t, e.d.Start(done, id), fault.Cancelled)
	e.wantState(t, id, driver.Created, driver.Stopped)

	for _, after := range []time.Duration{time.Millisecond, 8 * time.Millisecond, 64 * time.Millisecond} {
		c, cancel := context.WithTimeout(ctx(t), after)
		err := e.d.Start(c, id)
		cancel()
		if err == nil {
			e.wantState(t, id, driver.Running)
			if err := e.d.Stop(ctx(t), id, 0); err != nil {
				t.Fatal(err)
			}
			continue
		}
		wantCode(t, err, fault.Timeout)
		e.wantState(t, id, driver.Created, driver.Stopped)
	}
	b := &box{env: e, id: id}
	b.start(t)
	b.ping(t)
}

func testStartConcurrent(t *testing.T, e *env) {
	id := e.create(t)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() { errs <- e.d.Start(ctx(t), id) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("start: %s", causes(err))
		}
	}
	connect(t, e.d, id)
}

// finishes fails the test when f does not return in time.
func finishes(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-ctx(t).Done():
		t.Fatalf("%s does not return", what)
	}
}
