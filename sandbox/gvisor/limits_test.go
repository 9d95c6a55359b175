package gvisor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

func (r *rig) need(t *testing.T, feature string) {
	t.Helper()
	c, err := r.Capabilities(t.Context())
	must(t, err)
	if s := c.Support[feature]; !s.OK {
		t.Skipf("%s: %s", feature, s.Reason)
	}
}

func TestMemoryLimit(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureMemoryLimit)
	r.boot(t, "other")
	for _, script := range []string{
		"tail -c 400000000 /dev/zero | wc -c",
		strings.Repeat("tail -c 100000000 /dev/zero >/dev/null & ", 5) + "wait",
		"dd if=/dev/zero of=/dev/shm/x bs=1M count=31; mkdir /x; tail -c 200000000 /dev/zero",
	} {
		id := fmt.Sprintf("hog%d", len(script))
		r.boot(t, id, func(s *driver.Spec) { s.Limits.MemoryBytes = 64 << 20 })
		r.want(t, id, `awk '/MemTotal/ {print $2}' /proc/meminfo`, "65536")
		conn, err := r.Dial(t.Context(), id)
		must(t, err)
		out, status, err := talk(conn, script)
		conn.Close()
		t.Logf("%q %q %v", out, status, err)
		s, err := r.Wait(t.Context(), id)
		must(t, err)
		if s.State != driver.Stopped || !s.Exit.OOM || s.Exit.Reason != "out of memory (limit 64Mi)" {
			t.Errorf("%s: %+v", script, s)
		}
		must(t, r.Start(t.Context(), id))
		r.want(t, id, "echo back", "back")
		r.stop(t, id, 0)
		if s, err := r.Inspect(t.Context(), id); err != nil || s.Exit.OOM || s.Exit.Reason != "stopped" {
			t.Errorf("after a stop: %+v, %v", s, err)
		}
	}
	r.want(t, "other", "echo alive", "alive")
}

func TestDiskLimit(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureDiskLimit)
	r.boot(t, "full", func(s *driver.Spec) { s.Limits.DiskBytes = 32 << 20 })
	out, _ := r.sh(t, "full", "dd if=/dev/zero of=/big bs=1M count=100 2>&1; ls -l /big | awk '{print $5}'")
	if !strings.Contains(out, "No space left") {
		t.Errorf("100 MiB on 32: %q", out)
	}
	r.want(t, "full", "rm /big; dd if=/dev/zero of=/big bs=1M count=10 2>/dev/null && echo ok", "ok")
	r.sh(t, "full", "mkdir -p /tmp/d; echo x >/tmp/d/x")
	r.stop(t, "full", time.Second)
	must(t, r.Start(t.Context(), "full"))
	r.want(t, "full", "wc -c </big; cat /tmp/d/x", "10485760\nx")
}

func TestProcessLimit(t *testing.T) {
	r := newRig(t)
	r.boot(t, "forks", func(s *driver.Spec) { s.Limits.Processes = 64 })
	out, _ := r.sh(t, "forks", "i=0; while [ $i -lt 300 ]; do sleep 100 & i=$((i+1)); done; ls -d /proc/[0-9]* | wc -l")
	t.Logf("%q", out)
	r.want(t, "forks", "echo alive", "alive")
	if u, err := r.Usage(t.Context(), "forks"); err != nil || u.Processes > 64 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestCPULimit(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCPULimit)
	r.boot(t, "slow", func(s *driver.Spec) { s.Limits.CPUMillis = 100 })
	before, err := r.Usage(t.Context(), "slow")
	must(t, err)
	begin := time.Now()
	r.sh(t, "slow", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
	took := time.Since(begin)
	after, err := r.Usage(t.Context(), "slow")
	must(t, err)
	used := after.CPU - before.CPU
	t.Logf("%v of CPU in %v; now %+v", used, took, after)
	if used > took*3/10 {
		t.Errorf("a tenth of a CPU used %v in %v", used, took)
	}
}
