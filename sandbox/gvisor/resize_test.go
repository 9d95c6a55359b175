package gvisor

import (
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestResize(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureResize)
	limits := driver.Limits{MemoryBytes: 96 << 20, CPUMillis: 100, Processes: 50}
	r.boot(t, "s", func(s *driver.Spec) { s.Limits = limits })
	memory := func() int64 {
		t.Helper()
		name := "memory.limit_in_bytes"
		if r.host().v2 {
			name = "memory.max"
		}
		n, err := r.host().read("memory", r.cgroupOf("s"), name, "")
		if err != nil && !strings.Contains(err.Error(), "max") {
			t.Fatal(err)
		}
		return n
	}
	resize := func(l driver.Limits) {
		t.Helper()
		if err := r.Resize(t.Context(), "s", l); err != nil {
			t.Fatal(cause(err))
		}
		limits = l
		rec, err := r.box("s").readRecord()
		if err != nil || rec.Spec.Limits != l {
			t.Errorf("the record has %+v, %v", rec.Spec.Limits, err)
		}
	}
	refused := func(l driver.Limits, code fault.Code, word string) {
		t.Helper()
		err := r.Resize(t.Context(), "s", l)
		if !fault.Is(err, code) || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v", l, cause(err))
		}
		rec, err := r.box("s").readRecord()
		if err != nil || rec.Spec.Limits != limits {
			t.Errorf("refused, but the record has %+v, %v", rec.Spec.Limits, err)
		}
	}
	const hog = "dd if=/dev/zero of=/dev/shm/x bs=1M count=40 2>/dev/null; dd if=/dev/zero of=/dev/null bs=150M count=1 2>/dev/null && echo ok"
	resize(driver.Limits{MemoryBytes: 512 << 20, CPUMillis: 1000, Processes: 50})
	if n := memory(); n != 512<<20 {
		t.Errorf("the group has %d", n)
	}
	r.want(t, "s", hog, "ok")
	begin := time.Now()
	r.sh(t, "s", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("a loop took %v, as with a tenth of a CPU", took)
	}
	refused(driver.Limits{MemoryBytes: 32 << 20, CPUMillis: 1000, Processes: 50}, fault.Invalid, "uses")
	if n := memory(); n != 512<<20 {
		t.Errorf("refused, but the group has %d", n)
	}
	refused(driver.Limits{MemoryBytes: 512 << 20, CPUMillis: 1000, Processes: 60}, fault.Unsupported, driver.FeatureProcessLimit)
	refused(driver.Limits{MemoryBytes: 512 << 20, CPUMillis: 1000, Processes: 50, DiskBytes: 1 << 30}, fault.Unsupported, driver.FeatureDiskLimit)
	refused(driver.Limits{MemoryBytes: -1, Processes: 50}, fault.Invalid, driver.FeatureMemoryLimit)
	resize(driver.Limits{Processes: 50})
	r.want(t, "s", "echo alive", "alive")
	if n := memory(); n > 0 && n < 1<<60 {
		t.Errorf("unlimited, the group has %d", n)
	}
	resize(driver.Limits{MemoryBytes: 256 << 20, Processes: 50})
	if n := memory(); n != 256<<20 {
		t.Errorf("the group has %d", n)
	}
	// Suspended: with the next life.
	r.sh(t, "s", counter)
	r.suspend(t, "s")
	resize(driver.Limits{MemoryBytes: 300 << 20, CPUMillis: 500, Processes: 50})
	r.resume(t, "s", true)
	r.moves(t, "s")
	if n := memory(); n != 300<<20 {
		t.Errorf("resumed, the group has %d", n)
	}
	r.stop(t, "s", 0)
	resize(driver.Limits{MemoryBytes: 128 << 20, Processes: 70})
	refused(driver.Limits{DiskBytes: 1 << 30}, fault.Unsupported, driver.FeatureDiskLimit)
	must(t, r.Start(t.Context(), "s"))
	r.want(t, "s", "ulimit -u; awk '/MemTotal/ {print $2}' /proc/meminfo", "70\n131072")
	if n := memory(); n != 128<<20 {
		t.Errorf("started, the group has %d", n)
	}
	if err := r.Resize(t.Context(), "nobody", limits); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// TestResizeUnsupported refuses what this host cannot do, and changes what it
// can.
func TestResizeUnsupported(t *testing.T) {
	r := newRig(t)
	if r.host().memory.OK {
		t.Skip("not on this kind of machine: limits can be changed here")
	}
	r.boot(t, "s")
	must(t, r.Resize(t.Context(), "s", driver.Limits{}))
	if err := r.Resize(t.Context(), "s", driver.Limits{MemoryBytes: 1 << 30}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("%v", err)
	}
	r.stop(t, "s", 0)
	must(t, r.Resize(t.Context(), "s", driver.Limits{Processes: 70}))
	must(t, r.Start(t.Context(), "s"))
	r.want(t, "s", "ulimit -u", "70")
}

// TestDiskUse writes and deletes 20 MB.
func TestDiskUse(t *testing.T) {
	r := newRig(t)
	r.variants(t, func(t *testing.T, id string, change func(*driver.Spec)) {
		r.boot(t, id, change)
		use := func(script string, least, most int64) {
			t.Helper()
			r.sh(t, id, script+"; sync")
			var u driver.Usage
			// A count may be as old as countAge, and blocks are freed in time.
			for begin := time.Now(); time.Since(begin) < 20*time.Second; {
				var err error
				if u, err = r.Usage(t.Context(), id); err != nil {
					t.Fatal(cause(err))
				}
				if u.DiskBytes >= least && u.DiskBytes <= most {
					return
				}
				must(t, pause(t.Context()))
			}
			t.Errorf("%s: %s: %d bytes of disk, want %d to %d", id, script, u.DiskBytes, least, most)
		}
		const mb = 1 << 20
		use("true", 0, 8*mb)
		use("dd if=/dev/urandom of=/big bs=1M count=20 2>/dev/null", 20*mb, 28*mb)
		use("rm /big", 0, 10*mb)
	})
}
