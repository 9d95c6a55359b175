package drivertest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func createTests() []test {
	return []test{
		{name: "Create/Inspect", run: testCreate},
		{name: "Create/Exists", run: testCreateExists},
		{name: "Create/OneWins", run: testCreateOneWins},
		{name: "Create/Cancelled", run: testCreateCancelled},
		{name: "Create/LongestID", run: testCreateLongestID},
		{name: "Create/Labels", run: testLabels},
		{name: "List/OwnStateOnly", run: testListOwnStateOnly},
		{name: "NotFound", run: testNotFound},
	}
}

func testCreate(t *testing.T, e *env) {
	id := e.create(t)
	e.wantState(t, id, driver.Created)
	_, err := e.d.Dial(ctx(t), id)
	wantCode(t, err, fault.State)
	// Stopping what does not run does nothing.
	if err := e.d.Stop(ctx(t), id, time.Second); err != nil {
		t.Errorf("stop a sandbox that was never started: %v", err)
	}
	e.wantState(t, id, driver.Created)
}

func testCreateExists(t *testing.T, e *env) {
	id := e.create(t)
	again := e.spec()
	again.ID = id
	wantCode(t, e.d.Create(ctx(t), again), fault.Exists)
	e.wantState(t, id, driver.Created)

	b := &box{env: e, id: id}
	b.start(t)
	boot := b.conn.Hello().BootID
	wantCode(t, e.d.Create(ctx(t), again), fault.Exists)
	b.ping(t)

	b.stop(t, 0)
	wantCode(t, e.d.Create(ctx(t), again), fault.Exists)
	b.start(t)
	if b.conn.Hello().BootID == boot {
		t.Error("the boot id did not change with the start")
	}
}

func testCreateOneWins(t *testing.T, e *env) {
	s := e.spec()
	t.Cleanup(func() { e.remove(t, s.ID) })
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = e.d.Create(ctx(t), s) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantCode(t, err, fault.Exists, fault.Busy)
	}
	if won != 1 {
		t.Fatalf("%d of %d won: %v", won, len(errs), errs)
	}
	b := &box{env: e, id: s.ID}
	b.start(t)
	b.ping(t)
}

func testCreateCancelled(t *testing.T, e *env) {
	s := e.spec()
	done, cancel := context.WithCancel(ctx(t))
	cancel()
	wantCode(t, e.d.Create(done, s), fault.Cancelled)
	e.noTrace(t, s.ID)

	// Whatever the moment of the end, there is all or nothing.
	for _, after := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond, 64 * time.Millisecond, 256 * time.Millisecond} {
		c, cancel := context.WithTimeout(ctx(t), after)
		err := e.d.Create(c, s)
		cancel()
		if err == nil {
			e.wantState(t, s.ID, driver.Created)
			e.remove(t, s.ID)
			continue
		}
		wantCode(t, err, fault.Timeout)
		e.noTrace(t, s.ID)
	}
	e.create(t, func(again *driver.Spec) { again.ID = s.ID })
}

func testCreateLongestID(t *testing.T, e *env) {
	for _, id := range []string{newID() + strings.Repeat("_", 63-len(newID())), newID() + "-a_b"} {
		b := e.boot(t, func(s *driver.Spec) { s.ID = id })
		b.ping(t)
	}
}

func testLabels(t *testing.T, e *env) {
	labels := map[string]string{
		"owner": "usr_1", "empty": "", "with.dots/and-slashes": "ä \"quoted\"\nsecond line", "long": strings.Repeat("x", 4096),
	}
	id := e.create(t, func(s *driver.Spec) { s.Labels = maps.Clone(labels) })
	bare := e.create(t)
	list, err := e.d.List(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]driver.Status{}
	for i, s := range list {
		if i > 0 && list[i-1].ID >= s.ID {
			t.Errorf("%s is listed after %s", s.ID, list[i-1].ID)
		}
		seen[s.ID] = s
	}
	checkState(t, seen[bare], bare, driver.Created)
	checkState(t, seen[id], id, driver.Created)
	wantLabels(t, seen[id], labels)
	wantLabels(t, e.wantState(t, id, driver.Created), labels)
}

func wantLabels(t *testing.T, s driver.Status, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got, ok := s.Labels[k]; !ok || got != v {
			t.Errorf("label %q is %.40q (present: %v), want %.40q", k, got, ok, v)
		}
	}
}

func testListOwnStateOnly(t *testing.T, e *env) {
	other := newEnv(t, e.h)
	if list, err := other.d.List(ctx(t)); err != nil || len(list) != 0 {
		t.Fatalf("a new state folder lists %v, %v", list, err)
	}
	mine, theirs := e.create(t), other.create(t)
	list, err := other.d.List(ctx(t))
	if err != nil || len(list) != 1 || list[0].ID != theirs {
		t.Errorf("list is %v, %v; want only %s", list, err, theirs)
	}
	_, err = other.d.Inspect(ctx(t), mine)
	wantCode(t, err, fault.NotFound)
	if err := other.d.Remove(ctx(t), mine); err != nil {
		t.Errorf("remove what another state folder owns: %v", err)
	}
	e.wantState(t, mine, driver.Created)
}

func testNotFound(t *testing.T, e *env) {
	for _, id := range []string{newID(), "../" + newID(), "", "A b"} {
		t.Run(fmt.Sprintf("%.4q", id), func(t *testing.T) {
			wantCode(t, e.d.Start(ctx(t), id), fault.NotFound)
			wantCode(t, e.d.Stop(ctx(t), id, 0), fault.NotFound)
			_, err := e.d.Dial(ctx(t), id)
			wantCode(t, err, fault.NotFound)
			_, err = e.d.Inspect(ctx(t), id)
			wantCode(t, err, fault.NotFound)
			_, err = e.d.Wait(ctx(t), id)
			wantCode(t, err, fault.NotFound)
			if err := e.d.Remove(ctx(t), id); err != nil {
				t.Errorf("remove what does not exist: %v", err)
			}
			if stats, ok := e.d.(driver.Stats); ok {
				_, err := stats.Usage(ctx(t), id)
				wantCode(t, err, fault.NotFound)
			}
		})
	}
}
