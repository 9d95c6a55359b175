package drivertest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func limitTests() []test {
	return []test{
		{name: "Limits/Memory", walls: true, needs: driver.FeatureMemoryLimit, run: testMemoryLimit},
		{name: "Limits/CPU", walls: true, needs: driver.FeatureCPULimit, run: testCPULimit},
		{name: "Limits/Disk", walls: true, needs: driver.FeatureDiskLimit, run: testDiskLimit},
		{name: "Limits/DiskOfHostDirs", walls: true, needs: driver.FeatureDiskLimit, run: testDiskLimitOfHostDirs},
		{name: "Limits/Processes", walls: true, needs: driver.FeatureProcessLimit, run: testProcessLimit},
	}
}

// testMemoryLimit holds that a sandbox that exceeds its memory dies, alone,
// and that its status says so.
func testMemoryLimit(t *testing.T, e *env) {
	limit := func(s *driver.Spec) { s.Limits.MemoryBytes = 128 << 20 }
	hog, neighbour := e.boot(t, limit), e.boot(t, limit)
	hog.sh(t, "echo kept >f")
	// Well below the limit nothing happens.
	hog.sh(t, "dd if=/dev/zero of=/dev/null bs=16M count=1")
	died := e.wait(ctx(t), hog.id)
	_, err := hog.conn.Start(ctx(t), guest.Command{
		ID: newID(), NoStdin: true, Args: []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"},
	}, guest.Output{})
	if err != nil {
		t.Logf("the hog: %v", err) // may die before the answer
	}
	w := <-died
	if w.err != nil {
		t.Fatalf("the sandbox does not die of 512 MiB in 128: %v", w.err)
	}
	checkState(t, w.status, hog.id, driver.Stopped)
	checkOOM(t, w.status)
	checkOOM(t, e.wantState(t, hog.id, driver.Stopped))
	neighbour.ping(t)
	neighbour.sh(t, "true")

	// It starts again, with its files, and the old exit is forgotten.
	hog.start(t)
	if got := hog.sh(t, "cat f"); got != "kept" {
		t.Errorf("after the death: %q", got)
	}
	hog.stop(t, 0)
	if s := e.wantState(t, hog.id, driver.Stopped); s.Exit.OOM {
		t.Errorf("stopped on request, but the exit is %+v", s.Exit)
	}
}

func checkOOM(t *testing.T, s driver.Status) {
	t.Helper()
	if !s.Exit.OOM || !strings.Contains(s.Exit.Reason, "memory") || !oneLine(s.Exit.Reason) {
		t.Errorf("exit is %+v, want out of memory", s.Exit)
	}
}

// testCPULimit burns one second of two cores under a quarter of one. Other
// load on the machine only lowers what is used, so the bound never fails for it.
func testCPULimit(t *testing.T, e *env) {
	stats, ok := e.d.(driver.Stats)
	if !ok {
		t.Skipf("%s does not account for its sandboxes, so the effect cannot be seen", e.d.Name())
	}
	b := e.boot(t, func(s *driver.Spec) { s.Limits.CPUMillis = 250 })
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
	wall, used := time.Since(begin), after.CPU-before.CPU
	if used <= 0 || used > wall/2 {
		t.Errorf("used %v in %v with a limit of 0.25 cores", used, wall)
	}
	t.Logf("used %v in %v", used, wall)
}

func testDiskLimit(t *testing.T, e *env) {
	b := e.boot(t, func(s *driver.Spec) { s.Limits.DiskBytes = 64 << 20 })
	fillDisk(t, b, "/big")
	// The limit holds after a restart as well.
	b.stop(t, 0)
	b.start(t)
	fillDisk(t, b, "/usr/big")
}

// fillDisk writes until the disk is full, makes room, and writes again.
func fillDisk(t *testing.T, b *box, path string) {
	t.Helper()
	r := b.try(t, "dd if=/dev/zero of="+path+" bs=1M count=200; s=$?; stat -c %s "+path+"; exit $s")
	if r.exit.Status() == 0 {
		t.Errorf("200 MiB were written to %s within a limit of 64", path)
	} else if !strings.Contains(r.stderr, "No space left") && !strings.Contains(r.stderr, "quota exceeded") {
		t.Errorf("writing to a full disk says %q", r.stderr)
	}
	if size, err := strconv.ParseInt(strings.TrimSpace(r.stdout), 10, 64); err != nil || size > 72<<20 {
		t.Errorf("%s is of %q bytes in a limit of 64 MiB", path, r.stdout)
	}
	b.ping(t)
	b.sh(t, "rm "+path+" && dd if=/dev/zero of="+path+" bs=1M count=16 && rm "+path)
}

func testDiskLimitOfHostDirs(t *testing.T, e *env) {
	e.need(t, driver.FeatureHostDirs)
	b := e.boot(t, func(s *driver.Spec) {
		s.Limits.DiskBytes = 64 << 20
		s.Rootfs.HostDirs = []driver.HostDir{{Source: t.TempDir(), Target: "/mnt/shown"}}
	})
	fillDisk(t, b, "/mnt/shown/big")
}

// bomb makes processes until the system refuses, says how many there are, and
// kills them when it is told to. It uses nothing that would need one more.
const bomb = `
(trap 'echo $pids >pids' EXIT
 i=0; while [ $i -lt 400 ]; do i=$((i+1)); sleep 1000 </dev/null >/dev/null 2>&1 & pids="$pids $!"; done) 2>/dev/null
set -- /proc/[0-9]*; echo count $#.; echo ready; read x; read pids <pids; kill -9 $pids; exit 0`

// testProcessLimit holds that a fork bomb ends at the limit, and that the
// sandbox is of use again when the bomb is gone.
func testProcessLimit(t *testing.T, e *env) {
	const limit = 100
	b := e.boot(t, func(s *driver.Spec) { s.Limits.Processes = limit })
	p, out := b.background(t, bomb)
	_, text, _ := strings.Cut(out.String(), "count ")
	number, _, _ := strings.Cut(text, ".")
	if n, err := strconv.Atoi(number); err != nil || n > limit || n < limit/4 {
		t.Errorf("a fork bomb has made %q processes with a limit of %d", number, limit)
	}
	b.ping(t)
	if _, err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx(t)); err != nil || exit.Status() != 0 {
		t.Errorf("the bomb ended with %+v, %v", exit, err)
	}
	b.sh(t, "true")
	connect(t, e.d, b.id)
}
