package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// stillness takes down for how long sandboxes were held still.
type stillness struct {
	slog.Handler
	took []time.Duration
}

func (s *stillness) Enabled(context.Context, slog.Level) bool { return true }

func (s *stillness) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "took" {
			s.took = append(s.took, a.Value.Duration())
		}
		return true
	})
	return nil
}

// BenchmarkSave saves a sandbox with files of a megabyte, starts another from
// that, and goes back to it. "still" is for how long it was held still.
func BenchmarkSave(b *testing.B) {
	for _, c := range []struct {
		megabytes int
		disk      int64
	}{{10, 0}, {10, 2 << 30}, {500, 0}, {500, 2 << 30}} {
		name := fmt.Sprintf("%dMB", c.megabytes)
		if c.disk > 0 {
			name += "-disk"
		}
		b.Run(name, func(b *testing.B) {
			r := newRig(b)
			log := &stillness{Handler: slog.DiscardHandler}
			r.log = slog.New(log)
			limited := func(s *driver.Spec) { s.Limits.DiskBytes = c.disk }
			r.boot(b, "s", limited)
			r.sh(b, "s", fmt.Sprintf("i=0; while [ $((i+=1)) -le %d ]; do dd if=/dev/urandom of=/f$i bs=1M count=1 2>/dev/null; done; sync", c.megabytes))
			steps := make(map[string][]time.Duration)
			for b.Loop() {
				last := time.Now()
				step := func(name string) {
					now := time.Now()
					steps[name] = append(steps[name], now.Sub(last))
					last = now
				}
				dir := filepath.Join(r.saves(b), "s")
				must(b, r.Save(b.Context(), "s", dir))
				step("save")
				r.boot(b, "child", limited, func(s *driver.Spec) { s.Rootfs.Saved = []string{dir} })
				step("create-and-start")
				r.want(b, "child", "ls /f1", "/f1")
				must(b, r.Stop(b.Context(), "child", 0))
				last = time.Now()
				must(b, r.Restore(b.Context(), "child", dir))
				step("restore")
				must(b, r.Remove(b.Context(), "child"))
				must(b, r.Discard(b.Context(), dir))
			}
			steps["still"] = log.took
			for name, d := range steps {
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2])/1e6, name+"-ms")
			}
		})
	}
}
