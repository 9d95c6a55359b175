package drivertest

import (
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// testSuspendFiles holds that files written up to the last moment are there,
// whichever way the sandbox comes back.
func testSuspendFiles(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, "exec 3>open; echo ready; read x <&0; sleep 1000")
	b.sh(t, "head -c 3000000 /dev/urandom >big; rm -f gone; mkdir d; echo 1 >d/f")
	want := b.sh(t, "md5sum <big")
	b.suspend(t)
	b.resume(t)
	if got := b.sh(t, "md5sum <big; cat d/f"); got != want+"\n1" {
		t.Errorf("resumed: %q", got)
	}
	b.sh(t, "echo 2 >d/f")
	b.suspend(t)
	b.start(t)
	if got := b.sh(t, "md5sum <big; cat d/f"); got != want+"\n2" {
		t.Errorf("started from the files: %q", got)
	}
}

func wantCold(t *testing.T, how driver.Resumption) {
	t.Helper()
	if how.Memory || !oneLine(how.Reason) || len(how.Reason) > 200 {
		t.Errorf("resumed with %+v, want no memory and a reason of one clause", how)
	}
}

func testResumeWithoutImage(t *testing.T, e *env) {
	b := &box{env: e, id: e.create(t)}
	for _, state := range []string{"created", "stopped"} {
		how, err := e.suspender(t).Resume(ctx(t), b.id)
		if err != nil {
			t.Fatalf("resume what is %s: %s", state, causes(err))
		}
		wantCold(t, how)
		b.up(t)
		b.sh(t, "echo x >>f")
		b.stop(t, 0)
	}
	b.start(t)
	if got := b.sh(t, "cat f"); got != "x\nx" {
		t.Errorf("got %q", got)
	}
}

func testResumeDamaged(t *testing.T, e *env) {
	if e.h.DamageMemory == nil {
		t.Skip("the harness cannot damage a memory image")
	}
	b := e.boot(t)
	b.background(t, counter)
	b.sh(t, "echo kept >f")
	boot := b.conn.Hello().BootID
	b.suspend(t)
	e.h.DamageMemory(t, e.state, b.id)
	how, err := e.suspender(t).Resume(ctx(t), b.id)
	if err != nil {
		t.Fatalf("resume from a damaged image: %s", causes(err))
	}
	wantCold(t, how)
	b.up(t)
	if b.conn.Hello().BootID == boot {
		t.Error("it came back with its memory")
	}
	if got := b.sh(t, "cat f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	// It is as good as any.
	b.background(t, counter)
	before := b.count(t)
	b.suspend(t)
	b.resume(t)
	b.counts(t, before)
}

// cold wants a sandbox that runs without what ran before.
func (b *box) cold(t *testing.T, boot string) {
	t.Helper()
	if got := b.conn.Hello().BootID; got == boot {
		t.Error("the guest is the suspended one")
	}
	list, err := b.conn.List(ctx(t))
	if err != nil || len(list) > 0 {
		t.Errorf("the guest knows of %v, %v", list, err)
	}
	at := b.sh(t, "cat n")
	b.sh(t, "sleep 0.1")
	if now := b.sh(t, "cat n"); now != at {
		t.Errorf("the counter goes on: %s, %s", at, now)
	}
}

func testSuspendedStart(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, counter)
	boot := b.conn.Hello().BootID
	b.suspend(t)
	b.start(t)
	if s := e.wantState(t, b.id, driver.Running); s.Memory {
		t.Error("started, and still with an image")
	}
	b.cold(t, boot)
	b.stop(t, 0)
	if s := e.wantState(t, b.id, driver.Stopped); s.Memory {
		t.Error("the image is still there after the start and a stop")
	}
}

func testSuspendedStop(t *testing.T, e *env) {
	for _, grace := range graces {
		b := e.boot(t)
		b.background(t, counter)
		boot := b.conn.Hello().BootID
		b.suspend(t)
		b.stop(t, grace)
		if s := e.wantState(t, b.id, driver.Stopped); s.Memory {
			t.Error("stopped, and still with an image")
		}
		how, err := e.suspender(t).Resume(ctx(t), b.id)
		if err != nil {
			t.Fatalf("resume: %s", causes(err))
		}
		wantCold(t, how)
		b.up(t)
		b.cold(t, boot)
	}
}

func testSuspendedRemove(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, counter)
	b.suspend(t)
	e.remove(t, b.id)
	again := e.boot(t, func(s *driver.Spec) { s.ID = b.id })
	again.refuses(t, "cat n")
}

func testSuspendedSave(t *testing.T, e *env) {
	e.need(t, driver.FeatureSave)
	b := e.boot(t)
	b.background(t, counter)
	b.sh(t, "echo one >f")
	before := b.count(t)
	b.suspend(t)
	dir := b.save(t)
	if s := e.wantState(t, b.id, driver.Stopped); !s.Memory {
		t.Error("saving has cost the image")
	}
	b.resume(t)
	b.counts(t, before)
	again := e.boot(t, from(dir))
	if got := again.sh(t, "cat f"); got != "one" {
		t.Errorf("from the saved layer: %q", got)
	}
	if n := number(t, again.sh(t, "cat n")); n < before {
		t.Errorf("the saved counter is at %d and was at %d", n, before)
	}
}

func testSuspendedRestore(t *testing.T, e *env) {
	e.need(t, driver.FeatureSave)
	b := e.boot(t)
	b.sh(t, "echo old >f; echo 1 >n")
	dir := b.save(t)
	b.background(t, counter)
	b.sh(t, "echo new >f")
	boot := b.conn.Hello().BootID
	b.suspend(t)
	b.restore(t, dir)
	if s := e.wantState(t, b.id, driver.Stopped); s.Memory {
		t.Error("restored, and still with an image of other files")
	}
	how, err := e.suspender(t).Resume(ctx(t), b.id)
	if err != nil {
		t.Fatalf("resume: %s", causes(err))
	}
	wantCold(t, how)
	b.up(t)
	b.cold(t, boot)
	if got := strings.Fields(b.sh(t, "cat f n")); got[0] != "old" || got[1] != "1" {
		t.Errorf("got %q", got)
	}
}
