package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func resizeTests() []test {
	all := []test{
		{name: "Resize/Refusals", run: testResizeRefusals},
		{name: "Resize/Stopped", run: testResizeStopped},
		{name: "Resize/Memory", walls: true, run: testResizeMemory},
		{name: "Resize/MemoryInUse", walls: true, run: testResizeMemoryInUse},
		{name: "Resize/CPU", walls: true, run: testResizeCPU},
		{name: "Resize/Processes", walls: true, run: testResizeProcesses},
		{name: "Resize/Disk", walls: true, run: testResizeDisk},
	}
	for i := range all {
		all[i].needs = driver.FeatureResize
	}
	return all
}

func (e *env) resizer(t *testing.T) driver.Resizer {
	t.Helper()
	r, ok := e.d.(driver.Resizer)
	if !ok {
		t.Fatalf("%s reports %q and is no driver.Resizer", e.d.Name(), driver.FeatureResize)
	}
	return r
}

// resize changes the limits, and reports whether the driver can. When it
// cannot, it names the limit.
func (b *box) resize(t *testing.T, limits driver.Limits, feature string) bool {
	t.Helper()
	err := b.resizer(t).Resize(ctx(t), b.id, limits)
	if err == nil {
		return true
	}
	wantCode(t, err, fault.Unsupported)
	if !strings.Contains(err.Error(), strings.Fields(feature)[0]) {
		t.Errorf("the refusal %q does not name the %s", err, feature)
	}
	return false
}

// mustResize is resize for what has to work where the limit itself does.
func (b *box) mustResize(t *testing.T, limits driver.Limits, feature string) {
	t.Helper()
	if !b.resize(t, limits, feature) {
		t.Fatalf("the %s cannot be changed to %+v", feature, limits)
	}
}

func testResizeRefusals(t *testing.T, e *env) {
	r := e.resizer(t)
	wantCode(t, r.Resize(ctx(t), newID(), driver.Limits{}), fault.NotFound)
	b := e.boot(t)
	for _, l := range []driver.Limits{{MemoryBytes: -1}, {CPUMillis: -1}, {DiskBytes: -1}, {Processes: -1}} {
		wantCode(t, r.Resize(ctx(t), b.id, l), fault.Invalid)
	}
	if err := r.Resize(ctx(t), b.id, driver.Limits{}); err != nil {
		t.Errorf("to what it is: %s", causes(err))
	}
	for feature, l := range map[string]driver.Limits{
		driver.FeatureMemoryLimit: {MemoryBytes: 256 << 20}, driver.FeatureCPULimit: {CPUMillis: 500}, driver.FeatureProcessLimit: {Processes: 256},
	} {
		if !e.support(t, feature).OK && b.resize(t, l, feature) {
			t.Errorf("%s: taken, and not enforced", feature)
		}
	}
	b.ping(t)
}

// testResizeStopped holds that limits changed between two lives hold in the
// next, over a restart of the server too.
func testResizeStopped(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	e.need(t, driver.FeatureProcessLimit)
	b := e.boot(t)
	b.sh(t, "echo kept >f")
	b.stop(t, 0)
	b.mustResize(t, driver.Limits{Processes: 60}, driver.FeatureProcessLimit)
	e.restart(t)
	b.start(t)
	if got := b.sh(t, "cat f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	if e.h.NoWalls == "" {
		b.bomb(t, 15, 60)
	}
}

// bomb starts as many processes as there can be and wants their number within
// bounds.
func (b *box) bomb(t *testing.T, least, most int) {
	t.Helper()
	p, out := b.background(t, bomb)
	_, text, _ := strings.Cut(out.String(), "count ")
	text, _, _ = strings.Cut(text, ".")
	if n := number(t, text); n < least || n > most {
		t.Errorf("a fork bomb has made %d processes, want %d to %d", n, least, most)
	}
	if _, err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx(t)); err != nil || exit.Status() != 0 {
		t.Errorf("the bomb ended with %+v, %v", exit, err)
	}
}

func testResizeProcesses(t *testing.T, e *env) {
	e.need(t, driver.FeatureProcessLimit)
	b := e.boot(t, func(s *driver.Spec) { s.Limits.Processes = 60 })
	b.bomb(t, 15, 60)
	if !b.resize(t, driver.Limits{Processes: 200}, driver.FeatureProcessLimit) {
		b.bomb(t, 15, 60)
		t.Skip("the process limit of a running sandbox cannot be changed here")
	}
	b.bomb(t, 70, 200)
	b.mustResize(t, driver.Limits{Processes: 60}, driver.FeatureProcessLimit)
	b.bomb(t, 15, 60)
	b.stop(t, 0)
	b.start(t)
	b.bomb(t, 15, 60)
}

// testResizeMemory takes the limit up and down; a hog tells where it is.
func testResizeMemory(t *testing.T, e *env) {
	e.need(t, driver.FeatureMemoryLimit)
	b := e.boot(t, func(s *driver.Spec) { s.Limits.MemoryBytes = 128 << 20 })
	b.background(t, counter)
	before := b.count(t)
	b.mustResize(t, driver.Limits{MemoryBytes: 1 << 30}, driver.FeatureMemoryLimit)
	b.sh(t, "dd if=/dev/zero of=/dev/null bs=256M count=1")
	b.counts(t, before) // it was no restart
	// Memory that is free inside may count as used outside for a while.
	b.lower(t, 192<<20)
	died := e.wait(ctx(t), b.id)
	b.try512(t)
	w := <-died
	if w.err != nil {
		t.Fatalf("the sandbox does not die of 512 MiB in 192: %v", w.err)
	}
	checkOOM(t, w.status)
	b.start(t)
	died = e.wait(ctx(t), b.id)
	b.try512(t)
	if w = <-died; w.err != nil {
		t.Fatalf("after another start it does not die of 512 MiB in 192: %v", w.err)
	}
	checkOOM(t, w.status)
}

// lower takes the memory limit down as soon as that is possible.
func (b *box) lower(t *testing.T, bytes int64) {
	t.Helper()
	c := ctx(t)
	for {
		err := b.resizer(t).Resize(c, b.id, driver.Limits{MemoryBytes: bytes})
		if err == nil {
			return
		}
		if !fault.Is(err, fault.Invalid) || c.Err() != nil {
			t.Fatalf("lower the memory limit: %s", causes(err))
		}
		b.sh(t, "sleep 0.1")
	}
}

func testResizeMemoryInUse(t *testing.T, e *env) {
	e.need(t, driver.FeatureMemoryLimit)
	stats, ok := e.d.(driver.Stats)
	if !ok {
		t.Skipf("%s does not account for its sandboxes", e.d.Name())
	}
	b := e.boot(t, func(s *driver.Spec) { s.Limits.MemoryBytes = 512 << 20 })
	b.background(t, "dd if=/dev/zero bs=200M count=1 2>/dev/null | sleep 1000 & echo ready; wait")
	c := ctx(t)
	for used := int64(0); used < 190<<20; {
		u, err := stats.Usage(c, b.id)
		if err != nil {
			t.Fatal(err)
		}
		used = u.MemoryBytes
	}
	wantCode(t, b.resizer(t).Resize(c, b.id, driver.Limits{MemoryBytes: 64 << 20}), fault.Invalid)
	b.ping(t)
	b.sh(t, "dd if=/dev/zero of=/dev/null bs=64M count=1") // nothing has changed
}

func testResizeCPU(t *testing.T, e *env) {
	e.need(t, driver.FeatureCPULimit)
	stats, ok := e.d.(driver.Stats)
	if !ok {
		t.Skipf("%s does not account for its sandboxes, so the effect cannot be seen", e.d.Name())
	}
	b := e.boot(t)
	burn := func() (share float64) {
		before, err := stats.Usage(ctx(t), b.id)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		b.try(t, `for i in 1 2; do timeout 1 sh -c 'while :; do :; done' & done; wait`)
		after, err := stats.Usage(ctx(t), b.id)
		if err != nil {
			t.Fatal(err)
		}
		return (after.CPU - before.CPU).Seconds() / time.Since(begin).Seconds()
	}
	b.mustResize(t, driver.Limits{CPUMillis: 200}, driver.FeatureCPULimit)
	if share := burn(); share > 0.4 {
		t.Errorf("used %.2f cores with a limit of 0.2", share)
	}
	b.stop(t, 0)
	b.start(t)
	if share := burn(); share > 0.4 {
		t.Errorf("used %.2f cores after another start", share)
	}
	// How much more it is without the limit depends on what else runs here.
	b.mustResize(t, driver.Limits{}, driver.FeatureCPULimit)
	for c := ctx(t); burn() < 0.3; {
		if c.Err() != nil {
			t.Fatalf("without a limit it never uses more than 0.3 cores within %v", patience)
		}
	}
}

func testResizeDisk(t *testing.T, e *env) {
	e.need(t, driver.FeatureDiskLimit)
	b := e.boot(t, func(s *driver.Spec) { s.Limits = driver.Limits{DiskBytes: 64 << 20, Processes: 60} })
	b.sh(t, "echo kept >f")
	if b.resize(t, driver.Limits{DiskBytes: 256 << 20, Processes: 60}, driver.FeatureDiskLimit) {
		b.sh(t, "head -c 150000000 /dev/zero >big && rm big && cat f")
		return
	}
	// Nothing has changed: not the disk, and nothing that was asked for along
	// with it.
	if b.resize(t, driver.Limits{DiskBytes: 256 << 20, Processes: 300}, driver.FeatureDiskLimit) {
		t.Error("the disk limit was refused, and then taken together with another")
	}
	b.bomb(t, 15, 60)
	fillDisk(t, b, "/big")
}

// try512 takes more memory than the sandbox has; it dies of it before it can
// answer, or right after.
func (b *box) try512(t *testing.T) {
	t.Helper()
	_, err := b.conn.Start(ctx(t), guest.Command{
		ID: newID(), NoStdin: true, Args: []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"},
	}, guest.Output{})
	if err != nil {
		t.Logf("the hog: %v", err)
	}
}
