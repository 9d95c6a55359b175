package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func waitTests() []test {
	return []test{
		{name: "Wait/NotRunning", run: testWaitNotRunning},
		{name: "Wait/Stop", run: testWaitStop},
		{name: "Wait/Death", run: testWaitDeath},
		{name: "Wait/Remove", run: testWaitRemove},
		{name: "Wait/Context", run: testWaitContext},
		{name: "Stats", run: testStats},
	}
}

// waited is what Wait returned.
type waited struct {
	status driver.Status
	err    error
}

// wait calls Wait and gives its result to the channel.
func (e *env) wait(c context.Context, id string) <-chan waited {
	ch := make(chan waited, 1)
	go func() {
		s, err := e.d.Wait(c, id)
		ch <- waited{s, err}
	}()
	return ch
}

func testWaitNotRunning(t *testing.T, e *env) {
	id := e.create(t)
	s, err := e.d.Wait(ctx(t), id)
	if err != nil {
		t.Fatal(err)
	}
	checkState(t, s, id, driver.Created)
	b := &box{env: e, id: id}
	b.start(t)
	b.stop(t, 0)
	if s, err = e.d.Wait(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	checkState(t, s, id, driver.Stopped)
}

func testWaitStop(t *testing.T, e *env) {
	b := e.boot(t)
	waits := []<-chan waited{e.wait(ctx(t), b.id), e.wait(ctx(t), b.id)}
	b.stop(t, 0)
	for _, ch := range waits {
		w := <-ch
		if w.err != nil {
			t.Fatal(w.err)
		}
		checkState(t, w.status, b.id, driver.Stopped)
	}
	// A start after that is waited for anew.
	b.start(t)
	c, cancel := context.WithTimeout(ctx(t), 30*time.Millisecond)
	defer cancel()
	_, err := e.d.Wait(c, b.id)
	wantCode(t, err, fault.Timeout)
}

func testWaitDeath(t *testing.T, e *env) {
	b := e.boot(t)
	ch := e.wait(ctx(t), b.id)
	if err := b.conn.Shutdown(ctx(t)); err != nil {
		t.Logf("shutdown: %v", err) // the answer may be lost with the sandbox
	}
	w := <-ch
	if w.err != nil {
		t.Fatal(w.err)
	}
	checkState(t, w.status, b.id, driver.Stopped)
	if w.status.Exit.OOM {
		t.Error("PID 1 ended by itself, and it is reported as out of memory")
	}
	e.wantState(t, b.id, driver.Stopped)
	b.start(t)
	b.ping(t)
}

func testWaitRemove(t *testing.T, e *env) {
	b := e.boot(t)
	ch := e.wait(ctx(t), b.id)
	e.remove(t, b.id)
	if w := <-ch; w.err != nil {
		wantCode(t, w.err, fault.NotFound)
	} else {
		checkState(t, w.status, b.id, driver.Stopped)
	}
}

func testWaitContext(t *testing.T, e *env) {
	b := e.boot(t)
	c, cancel := context.WithCancel(ctx(t))
	ch := e.wait(c, b.id)
	cancel()
	wantCode(t, (<-ch).err, fault.Cancelled)
	c, cancel = context.WithTimeout(ctx(t), 10*time.Millisecond)
	defer cancel()
	wantCode(t, (<-e.wait(c, b.id)).err, fault.Timeout)
	b.ping(t)
}

func testStats(t *testing.T, e *env) {
	stats, ok := e.d.(driver.Stats)
	if !ok {
		t.Skipf("%s does not account for its sandboxes", e.d.Name())
	}
	id := e.create(t)
	_, err := stats.Usage(ctx(t), id)
	wantCode(t, err, fault.State)
	b := &box{env: e, id: id}
	b.start(t)
	b.background(t, "sleep 1000 & echo ready; wait")
	u, err := stats.Usage(ctx(t), id)
	if err != nil {
		t.Fatal(err)
	}
	if u.MemoryBytes <= 0 || u.Processes < 1 || u.CPU <= 0 || u.DiskBytes < -1 {
		t.Errorf("a running sandbox uses %+v", u)
	}
	b.stop(t, 0)
	_, err = stats.Usage(ctx(t), id)
	wantCode(t, err, fault.State)
}
