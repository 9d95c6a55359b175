package docker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// BenchmarkSaved measures saving what a sandbox has written, how long it is
// held still for that, and making the first and the next sandbox of it.
func BenchmarkSaved(b *testing.B) {
	for _, mb := range []int{10, 500} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) { benchmarkSaved(b, mb) })
	}
}

func benchmarkSaved(b *testing.B, mb int) {
	engine(b)
	state := b.TempDir()
	d := open(b, docker.Config{StateDir: state})
	b.Cleanup(func() { d.Close(); purge(b, state) })
	s := driver.Spec{ID: "box", Rootfs: drivertest.BusyboxRootfs(b), Guest: driver.Guest{Path: drivertest.BuildGuest(b)}}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(d.Create(b.Context(), s))
	must(d.Start(b.Context(), s.ID))
	stream, err := d.Dial(b.Context(), s.ID)
	must(err)
	conn, err := guest.Connect(b.Context(), stream)
	must(err)
	defer conn.Close()
	p, err := conn.Start(b.Context(), guest.Command{ID: "fill", NoStdin: true, Args: []string{
		"/bin/sh", "-c", fmt.Sprintf("for i in $(seq %d); do head -c 1048576 /dev/urandom >/f$i; done", mb),
	}}, guest.Output{})
	must(err)
	if exit, err := p.Wait(b.Context()); err != nil || exit.Status() != 0 {
		b.Fatal(exit, err)
	}
	laps := make(map[string]time.Duration)
	lap := func(name string, do func() error) {
		b.Helper()
		began := time.Now()
		must(do())
		laps[name+"-ms/op"] += time.Since(began)
	}
	for n := 0; b.Loop(); n++ {
		dir := filepath.Join(state, fmt.Sprint("saved", n))
		watching, stop := context.WithCancel(b.Context())
		still := make(chan time.Duration)
		go func() { still <- slowestPing(watching, conn) }()
		lap("save", func() error { return d.Save(b.Context(), s.ID, dir) })
		stop()
		laps["still-ms/op"] += <-still
		for _, which := range []string{"create-first", "create-next"} {
			from := s
			from.ID, from.Rootfs.Saved = "from", []string{dir}
			lap(which, func() error { return d.Create(b.Context(), from) })
			must(d.Remove(b.Context(), from.ID))
		}
		must(d.Discard(b.Context(), dir))
	}
	for name, sum := range laps {
		b.ReportMetric(float64(sum.Microseconds())/1e3/float64(b.N), name)
	}
}

// slowestPing is the longest that the guest took to answer.
func slowestPing(ctx context.Context, conn *guest.Conn) (longest time.Duration) {
	for {
		began := time.Now()
		if err := conn.Ping(ctx); err != nil {
			return longest
		}
		longest = max(longest, time.Since(began))
	}
}
