package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func stopTests() []test {
	return []test{
		{name: "Stop/AsksFirst", run: testStopAsksFirst},
		{name: "Stop/AtOnce", run: testStopAtOnce},
		{name: "Stop/StubbornProcess", run: testStopStubborn},
		{name: "Stop/Twice", run: testStopTwice},
		{name: "Stop/Cancelled", run: testStopCancelled},
		{name: "Stop/Restarts", run: testStopRestarts},
	}
}

// long is a grace that a test must never use up.
const long = 10 * time.Minute

func testStopAsksFirst(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `trap 'echo asked >term; exit 0' TERM; sleep 1000 & echo ready; wait`)
	b.stop(t, long)
	e.wantState(t, b.id, driver.Stopped)
	b.start(t)
	if got := b.sh(t, "cat term"); got != "asked" {
		t.Errorf("the process left %q", got)
	}
}

func testStopAtOnce(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `trap 'echo asked >term; exit 0' TERM; sleep 1000 & echo ready; wait`)
	b.stop(t, 0)
	s := e.wantState(t, b.id, driver.Stopped)
	if s.Exit.OOM {
		t.Error("a stop on request is reported as out of memory")
	}
	b.start(t)
	b.refuses(t, "cat term")
}

func testStopStubborn(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done`)
	b.stop(t, 700*time.Millisecond)
	e.wantState(t, b.id, driver.Stopped)
}

func testStopTwice(t *testing.T, e *env) {
	b := e.boot(t)
	for range 2 {
		b.stop(t, time.Second)
		e.wantState(t, b.id, driver.Stopped)
	}
	b.stop(t, 0)
	s := e.wantState(t, b.id, driver.Stopped)
	if s.Exit.OOM || s.Exit.Reason != "" && !oneLine(s.Exit.Reason) {
		t.Errorf("exit is %+v", s.Exit)
	}
}

func testStopCancelled(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done`)
	done, cancel := context.WithCancel(ctx(t))
	cancel()
	wantCode(t, e.d.Stop(done, b.id, long), fault.Cancelled)
	wantCode(t, e.d.Remove(done, b.id), fault.Cancelled)
	c, cancel := context.WithTimeout(ctx(t), 50*time.Millisecond)
	defer cancel()
	if err := e.d.Stop(c, b.id, long); err != nil {
		wantCode(t, err, fault.Timeout)
	}
	b.stop(t, 0)
	e.wantState(t, b.id, driver.Stopped)
}

// testStopRestarts goes round several times: what a start leaves behind shows.
func testStopRestarts(t *testing.T, e *env) {
	b := e.boot(t)
	for i := range 3 {
		b.sh(t, "echo x >>rounds")
		b.stop(t, graces[i%len(graces)])
		b.start(t)
	}
	if got := b.sh(t, "cat rounds"); got != "x\nx\nx" {
		t.Errorf("got %q", got)
	}
}
