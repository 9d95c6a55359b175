package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func restartTests() []test {
	return []test{
		{name: "Restart/List", run: testRestartList},
		{name: "Restart/ProcessesGoOn", run: testRestartProcesses},
		{name: "Restart/Wait", run: testRestartWait},
	}
}

func testRestartList(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	label := func(v string) func(*driver.Spec) {
		return func(s *driver.Spec) { s.Labels = map[string]string{"is": v} }
	}
	created := e.create(t, label("created"))
	stopped := e.boot(t, label("stopped"))
	stopped.sh(t, "echo kept >f")
	stopped.stop(t, 0)
	up := e.boot(t, label("running"))
	removed := e.boot(t)
	e.remove(t, removed.id)

	e.restart(t)
	list, err := e.d.List(ctx(t))
	if err != nil || len(list) != 3 {
		t.Fatalf("list is %v, %v; want three", list, err)
	}
	for i, s := range list {
		if i > 0 && list[i-1].ID >= s.ID {
			t.Errorf("%s is listed after %s", s.ID, list[i-1].ID)
		}
		want := map[string]driver.State{created: driver.Created, stopped.id: driver.Stopped, up.id: driver.Running}[s.ID]
		checkState(t, s, s.ID, want)
		wantLabels(t, s, map[string]string{"is": string(want)})
	}
	// What the old driver made, the new one starts, dials, stops and removes.
	again := e.spec()
	again.ID = stopped.id
	wantCode(t, e.d.Create(ctx(t), again), fault.Exists)
	stopped.start(t)
	if got := stopped.sh(t, "cat f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	b := &box{env: e, id: created}
	b.start(t)
	b.ping(t)
	up.conn = connect(t, e.d, up.id)
	up.ping(t)
	up.stop(t, time.Second)
	e.wantState(t, up.id, driver.Stopped)
	e.remove(t, up.id)
}

// testRestartProcesses holds that a process goes on while no server is there,
// and that its output continues where it was left.
func testRestartProcesses(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	b := e.boot(t)
	boot := b.conn.Hello().BootID
	p, before := b.background(t, `mkfifo go; echo ready; read x <go; i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo $i; done; echo done >done; read x; exit 9`)
	p.Close()
	b.sh(t, "echo >go")
	b.until(t, "the process writes with nobody there to read", "cat done")
	offset := p.Offset()
	seen := before.String()[:offset]
	b.conn.Close()

	e.restart(t)
	b.conn = connect(t, e.d, b.id)
	if got := b.conn.Hello().BootID; got != boot {
		t.Fatalf("the sandbox booted anew: %s, %s", boot, got)
	}
	after := newScreen()
	again, err := b.conn.Attach(ctx(t), p.ID(), offset, guest.Output{Stdout: after, Stderr: after})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	exit, err := again.Wait(ctx(t))
	if err != nil || exit.Code != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
	var want strings.Builder
	want.WriteString("ready\n")
	for i := 1; i <= 200; i++ {
		fmt.Fprintln(&want, i)
	}
	if got := seen + after.String(); got != want.String() {
		t.Errorf("the output over the restart is %q and %q", seen, after.String())
	}
}

func testRestartWait(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	b := e.boot(t)
	e.restart(t)
	ch := e.wait(ctx(t), b.id)
	b.conn = connect(t, e.d, b.id)
	if err := b.conn.Shutdown(ctx(t)); err != nil {
		t.Logf("shutdown: %v", err)
	}
	w := <-ch
	if w.err != nil {
		t.Fatal(w.err)
	}
	checkState(t, w.status, b.id, driver.Stopped)

	// What died while no server was there is found stopped.
	b.start(t)
	if err := b.conn.Shutdown(ctx(t)); err != nil {
		t.Logf("shutdown: %v", err)
	}
	e.restart(t)
	s, err := e.d.Wait(ctx(t), b.id)
	if err != nil {
		t.Fatal(err)
	}
	checkState(t, s, b.id, driver.Stopped)
}
