package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func suspendTests() []test {
	all := []test{
		{name: "Suspend/ProcessesGoOn", run: testSuspendProcesses},
		{name: "Suspend/Terminal", run: testSuspendTerminal},
		{name: "Suspend/Timers", run: testSuspendTimers},
		{name: "Suspend/ListeningSocket", walls: true, run: testSuspendListener},
		{name: "Suspend/OutputIsKept", run: testSuspendOutput},
		{name: "Suspend/StreamsOpen", run: testSuspendStreams},
		{name: "Suspend/Wait", run: testSuspendWait},
		{name: "Suspend/Refusals", run: testSuspendRefusals},
		{name: "Suspend/Cancelled", run: testSuspendCancelled},
		{name: "Suspend/OverRestart", run: testSuspendOverRestart},
		{name: "Suspend/Files", run: testSuspendFiles},
		{name: "Resume/WithoutImage", run: testResumeWithoutImage},
		{name: "Resume/DamagedImage", run: testResumeDamaged},
		{name: "Suspended/Start", run: testSuspendedStart},
		{name: "Suspended/Stop", run: testSuspendedStop},
		{name: "Suspended/Remove", run: testSuspendedRemove},
	}
	for i := range all {
		all[i].needs = driver.FeatureCheckpoint
	}
	return append(all,
		test{name: "Suspended/Save", needs: driver.FeatureCheckpoint, run: testSuspendedSave},
		test{name: "Suspended/Restore", needs: driver.FeatureCheckpoint, run: testSuspendedRestore},
	)
}

func (e *env) suspender(t *testing.T) driver.Suspender {
	t.Helper()
	s, ok := e.d.(driver.Suspender)
	if !ok {
		t.Fatalf("%s reports %q and is no driver.Suspender", e.d.Name(), driver.FeatureCheckpoint)
	}
	return s
}

// suspend suspends the sandbox as the Engine does, with no stream open.
func (b *box) suspend(t *testing.T) {
	t.Helper()
	b.conn.Close()
	<-b.conn.Done()
	if err := b.suspender(t).Suspend(ctx(t), b.id); err != nil {
		t.Fatalf("suspend %s: %s", b.id, causes(err))
	}
	if s := b.wantState(t, b.id, driver.Stopped); !s.Memory || s.Exit.OOM {
		t.Fatalf("suspended, the sandbox is %+v", s)
	}
}

// resume brings the sandbox back with its processes.
func (b *box) resume(t *testing.T) {
	t.Helper()
	how, err := b.suspender(t).Resume(ctx(t), b.id)
	if err != nil {
		t.Fatalf("resume %s: %s", b.id, causes(err))
	}
	if !how.Memory {
		t.Fatalf("resumed without its processes: %q", how.Reason)
	}
	b.up(t)
}

// up wants a running sandbox without an image and connects to it.
func (b *box) up(t *testing.T) {
	t.Helper()
	if s := b.wantState(t, b.id, driver.Running); s.Memory {
		t.Error("the sandbox runs, and still has a memory image")
	}
	b.conn = connect(t, b.d, b.id)
}

// counter counts in the file n for as long as it lives; pid holds who it is.
const counter = `echo $$ >pid; i=0; while :; do i=$((i+1)); echo $i >.n; mv .n n; [ $i = 1 ] && echo ready; done`

func (b *box) count(t *testing.T) int {
	t.Helper()
	return number(t, b.sh(t, "cat n"))
}

// counts fails the test when the counter does not go on.
func (b *box) counts(t *testing.T, atLeast int) {
	t.Helper()
	now := b.count(t)
	if now < atLeast {
		t.Errorf("the counter is at %d and was at %d", now, atLeast)
	}
	b.until(t, "the counter goes on", "[ $(cat n) -gt "+b.sh(t, "cat n")+" ]")
}

func testSuspendProcesses(t *testing.T, e *env) {
	b := e.boot(t)
	p, _ := b.background(t, counter)
	boot, pid := b.conn.Hello().BootID, b.sh(t, "cat pid")
	b.sh(t, "(trap '' HUP; exec sleep 1000) >/dev/null 2>&1 & echo $! >orphan")
	for range 3 {
		before := b.count(t)
		b.suspend(t)
		_, err := e.d.Dial(ctx(t), b.id)
		wantCode(t, err, fault.State)
		b.resume(t)
		if got := b.conn.Hello().BootID; got != boot {
			t.Fatalf("the guest is another: %s, %s", boot, got)
		}
		b.counts(t, before)
		if !running(t, b.conn, p.ID()) || b.sh(t, "cat pid") != pid {
			t.Error("the process is not the one that was suspended")
		}
	}
	b.sh(t, `kill -0 $(cat pid) && kill -0 $(cat orphan) && kill $(cat orphan)`)
	again, err := b.conn.Attach(ctx(t), p.ID(), p.Offset(), guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Signal(ctx(t), "KILL"); err != nil {
		t.Fatal(err)
	}
	if exit, err := again.Wait(ctx(t)); err != nil || exit.Signal != "KILL" {
		t.Errorf("%+v, %v", exit, err)
	}
}

func testSuspendTerminal(t *testing.T, e *env) {
	b := e.boot(t)
	out := newScreen()
	p, err := b.conn.Start(ctx(t), guest.Command{
		ID: newID(), Args: []string{"/bin/sh"}, Env: []string{"PS1=$ "},
		TTY: &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 33, Cols: 111}},
	}, guest.Output{Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("x=kept; cd /; echo 're'ady\r")); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "ready\r\n")
	p.Close()
	b.suspend(t)
	b.resume(t)
	after := newScreen()
	again, err := b.conn.Attach(ctx(t), p.ID(), -1, guest.Output{Stdout: after})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("echo \"<$x> $PWD\"; stty size; exit 3\r")); err != nil {
		t.Fatal(err)
	}
	after.wait(t, "<kept> /\r\n33 111\r\n")
	if exit, err := again.Wait(ctx(t)); err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// testSuspendTimers holds that what sleeps wakes up.
func testSuspendTimers(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, "for s in 1 2; do (sleep $s; echo $s >woke$s) & done; echo ready; wait; echo all >done; sleep 1000")
	b.suspend(t)
	b.resume(t)
	b.until(t, "the sleepers wake up", "cat done")
	if got := b.sh(t, "cat woke1 woke2"); got != "1\n2" {
		t.Errorf("got %q", got)
	}
}

func testSuspendListener(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, "nc -ll -p 7777 -e /bin/cat & echo ready; wait")
	echo := func(when, word string) {
		t.Helper()
		c, cancel := context.WithTimeout(ctx(t), 20*time.Second)
		defer cancel()
		s, err := b.conn.Dial(c, "tcp", "127.0.0.1:7777")
		for err != nil && c.Err() == nil {
			s, err = b.conn.Dial(c, "tcp", "127.0.0.1:7777")
		}
		if err != nil {
			t.Fatalf("%s nobody listens: %v", when, err)
		}
		defer s.Close()
		if _, err := s.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(word))
		for n := 0; n < len(got); {
			m, err := s.Read(got[n:])
			if n += m; err != nil && n < len(got) {
				t.Fatalf("%s the answer is %q, %v", when, got[:n], err)
			}
		}
		if string(got) != word {
			t.Errorf("%s the answer is %q", when, got)
		}
	}
	echo("before", "one")
	b.suspend(t)
	b.resume(t)
	echo("afterwards", "two")
}

// testSuspendOutput holds that output which nobody has read yet is there after
// the sandbox has come back, and only once.
func testSuspendOutput(t *testing.T, e *env) {
	b := e.boot(t)
	p, out := b.background(t, "echo ready; for i in 1 2 3 4 5; do echo line $i; done; read x; echo end; exit 4")
	out.wait(t, "line 5\n")
	p.Close()
	offset := p.Offset()
	seen := out.String()[:offset]
	b.suspend(t)
	b.resume(t)
	after := newScreen()
	again, err := b.conn.Attach(ctx(t), p.ID(), offset, guest.Output{Stdout: after, Stderr: after})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if exit, err := again.Wait(ctx(t)); err != nil || exit.Code != 4 {
		t.Errorf("%+v, %v", exit, err)
	}
	if got := seen + after.String(); got != "ready\nline 1\nline 2\nline 3\nline 4\nline 5\nend\n" {
		t.Errorf("got %q", got)
	}
}

// testSuspendStreams suspends with streams open and output on its way.
func testSuspendStreams(t *testing.T, e *env) {
	b := e.boot(t)
	p, _ := b.background(t, "echo ready; while :; do echo x; done")
	other := connect(t, e.d, b.id)
	raw, err := e.d.Dial(ctx(t), b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := b.suspender(t).Suspend(ctx(t), b.id); err != nil {
		t.Fatalf("suspend: %s", causes(err))
	}
	for _, c := range []*guest.Conn{b.conn, other} {
		select {
		case <-c.Done():
		case <-ctx(t).Done():
			t.Fatal("a connection does not end with the suspension")
		}
	}
	b.resume(t)
	if !running(t, b.conn, p.ID()) {
		t.Error("the process that was writing is gone")
	}
	if err := b.conn.Signal(ctx(t), p.ID(), "KILL"); err != nil {
		t.Error(err)
	}
	b.sh(t, "true")
}

func testSuspendWait(t *testing.T, e *env) {
	b := e.boot(t)
	ch := e.wait(ctx(t), b.id)
	b.suspend(t)
	w := <-ch
	if w.err != nil {
		t.Fatal(w.err)
	}
	checkState(t, w.status, b.id, driver.Stopped)
	if s, err := e.d.Wait(ctx(t), b.id); err != nil || !s.Memory {
		t.Errorf("%+v, %v", s, err)
	}
	list, err := e.d.List(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.ID == b.id && (!s.Memory || s.State != driver.Stopped) {
			t.Errorf("listed as %+v", s)
		}
	}
	if stats, ok := e.d.(driver.Stats); ok {
		_, err := stats.Usage(ctx(t), b.id)
		wantCode(t, err, fault.State)
	}
}

func testSuspendRefusals(t *testing.T, e *env) {
	s := e.suspender(t)
	wantCode(t, s.Suspend(ctx(t), newID()), fault.NotFound)
	_, err := s.Resume(ctx(t), newID())
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.Suspend(ctx(t), e.create(t)), fault.State)
	b := e.boot(t)
	b.background(t, counter)
	b.suspend(t)
	wantCode(t, s.Suspend(ctx(t), b.id), fault.State)
	b.resume(t) // the refusal has cost nothing
	before := b.count(t)
	boot := b.conn.Hello().BootID
	if _, err := s.Resume(ctx(t), b.id); err != nil {
		t.Errorf("resume what runs: %s", causes(err))
	}
	b.ping(t)
	if got := connect(t, e.d, b.id).Hello().BootID; got != boot {
		t.Error("resuming a running sandbox has started it anew")
	}
	b.counts(t, before)
	b.stop(t, 0)
	wantCode(t, s.Suspend(ctx(t), b.id), fault.State)
}

func testSuspendCancelled(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "echo kept >f")
	done, cancel := context.WithCancel(ctx(t))
	cancel()
	wantCode(t, e.suspender(t).Suspend(done, b.id), fault.Cancelled)
	if s := e.wantState(t, b.id, driver.Running, driver.Stopped); s.State == driver.Stopped {
		b.start(t)
	}
	if got := b.reconnectAndRead(t); got != "kept" {
		t.Errorf("got %q", got)
	}
	for _, patience := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		c, cancel := context.WithTimeout(ctx(t), patience)
		err := e.suspender(t).Suspend(c, b.id)
		cancel()
		if err != nil {
			wantCode(t, err, fault.Timeout)
		}
		s := e.wantState(t, b.id, driver.Running, driver.Stopped)
		if err == nil && !s.Memory {
			t.Errorf("suspended, and %+v", s)
		}
		if s.State == driver.Stopped {
			if how, err := e.suspender(t).Resume(ctx(t), b.id); err != nil || how.Memory != s.Memory {
				t.Errorf("resumed with %+v, %v from %+v", how, err, s)
			}
		}
		if got := b.reconnectAndRead(t); got != "kept" {
			t.Errorf("got %q", got)
		}
	}
}

func (b *box) reconnectAndRead(t *testing.T) string {
	t.Helper()
	b.conn = connect(t, b.d, b.id)
	return b.sh(t, "cat f")
}

func testSuspendOverRestart(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	b := e.boot(t)
	b.background(t, counter)
	before := b.count(t)
	b.suspend(t)
	e.restart(t)
	if s := e.wantState(t, b.id, driver.Stopped); !s.Memory {
		t.Fatalf("after the restart it is %+v", s)
	}
	b.resume(t)
	b.counts(t, before)
	// And what was resumed outlives the next server too.
	b.conn.Close()
	e.restart(t)
	b.up(t)
	b.counts(t, before)
}
