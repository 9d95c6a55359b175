package gvisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// BenchmarkLife takes sandboxes through their lives, one after the other, and
// reports the median of each step in milliseconds. "connect" is the handshake
// with the guest, "output" the first command, "total" all from create to that.
func BenchmarkLife(b *testing.B) {
	r := newRig(b)
	program := drivertest.BuildGuest(b)
	if _, err := r.Capabilities(b.Context()); err != nil { // probe first
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		limits driver.Limits
	}{
		{"unlimited", driver.Limits{}},
		{"limited", driver.Limits{MemoryBytes: 512 << 20, CPUMillis: 2000, DiskBytes: 1 << 30, Processes: 512}},
	} {
		b.Run(c.name, func(b *testing.B) {
			if err := r.host().checkLimits(driver.Spec{Limits: c.limits}); err != nil {
				b.Skip(err)
			}
			steps := make(map[string][]time.Duration)
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprintf("s%d", i)
				last := time.Now()
				step := func(name string) {
					now := time.Now()
					steps[name] = append(steps[name], now.Sub(last))
					last = now
				}
				s := r.spec(id)
				s.Limits = c.limits
				s.Guest = driver.Guest{Path: program}
				begin := last
				must(b, r.Create(b.Context(), s))
				step("create")
				must(b, r.Start(b.Context(), id))
				step("start")
				stream, err := r.Dial(b.Context(), id)
				must(b, err)
				step("dial")
				conn, err := guest.Connect(b.Context(), stream)
				must(b, err)
				step("connect")
				echo(b, conn, "first")
				step("output")
				steps["total"] = append(steps["total"], time.Since(begin))
				echo(b, conn, "second")
				step("exec")
				must(b, conn.Close())
				last = time.Now()
				must(b, r.Stop(b.Context(), id, 0))
				step("stop")
				must(b, r.Start(b.Context(), id))
				step("restart")
				must(b, r.Remove(b.Context(), id))
				step("remove")
			}
			for name, d := range steps {
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2])/1e6, name+"-ms")
			}
		})
	}
}

// echo runs a command to its end.
func echo(b *testing.B, conn *guest.Conn, id string) {
	b.Helper()
	var out strings.Builder
	p, err := conn.Start(b.Context(), guest.Command{ID: id, NoStdin: true, Args: []string{"/bin/echo", "hi"}}, guest.Output{Stdout: &out})
	must(b, err)
	if exit, err := p.Wait(b.Context()); err != nil || exit.Status() != 0 || out.String() != "hi\n" {
		b.Fatal(out.String(), exit, err)
	}
}
