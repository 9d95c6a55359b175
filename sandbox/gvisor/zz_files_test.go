package gvisor

import (
	"path/filepath"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

func BenchmarkZZ(b *testing.B) {
	drivertest.Benchmark(b, drivertest.Harness{
		New: func(t testing.TB, state string) driver.Driver {
			d, err := New(Config{StateDir: filepath.Join(state, "gvisor"), Executable: gvisortest.Executable(t)})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Rootfs: drivertest.BusyboxRootfs(b),
		Guest:  driver.Guest{Path: drivertest.BuildGuest(b)},
	})
}
