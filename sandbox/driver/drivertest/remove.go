package drivertest

import (
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func removeTests() []test {
	return []test{
		{name: "Remove/Created", run: testRemoveCreated},
		{name: "Remove/Running", run: testRemoveRunning},
		{name: "Remove/Leftovers", run: testRemoveLeftovers},
	}
}

func testRemoveCreated(t *testing.T, e *env) {
	id := e.create(t)
	for range 2 {
		e.remove(t, id)
	}
	wantCode(t, e.d.Start(ctx(t), id), fault.NotFound)
}

func testRemoveRunning(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `trap '' TERM HUP; (sleep 1000 &); mkdir -p a/b/c; chmod 000 a; echo ready; sleep 1000`)
	e.remove(t, b.id)
	select {
	case <-b.conn.Done():
	case <-ctx(t).Done():
		t.Error("the connection does not end with the sandbox")
	}
	_, err := e.d.Dial(ctx(t), b.id)
	wantCode(t, err, fault.NotFound)
	e.remove(t, b.id)
}

func testRemoveLeftovers(t *testing.T, e *env) {
	if e.h.Damage == nil {
		t.Skip("the harness cannot damage a sandbox")
	}
	own := newEnv(t, e.h)
	b := own.boot(t)
	b.stop(t, 0)
	own.h.Damage(t, own.state, b.id)
	for range 2 {
		own.wantState(t, b.id, driver.Broken)
		list, err := own.d.List(ctx(t))
		if err != nil || len(list) != 1 {
			t.Fatalf("list is %v, %v; want the leftover", list, err)
		}
		checkState(t, list[0], b.id, driver.Broken)
		_, err = own.d.Dial(ctx(t), b.id)
		wantCode(t, err, fault.State)
		wantCode(t, own.d.Create(ctx(t), driver.Spec{ID: b.id, Rootfs: own.h.Rootfs, Guest: own.h.Guest}), fault.Exists)
		own.restart(t)
	}
	own.remove(t, b.id)
	// Its id is free again.
	own.create(t, func(s *driver.Spec) { s.ID = b.id })
}
