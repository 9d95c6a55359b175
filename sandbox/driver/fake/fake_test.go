package fake_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

const noWalls = "fake sandboxes are processes of this machine"

// TestMain makes this program the guest as well, for what a sandbox has of its
// own is run from that.
func TestMain(m *testing.M) {
	if os.Args[0] == "guest" {
		os.Exit(agent.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// harness runs the suite on one Host, as on one machine. Any program will do
// as the guest: the fake's is a library.
func harness(tb testing.TB, unsupported map[string]string) drivertest.Harness {
	tb.Helper()
	host := fake.NewHost()
	tb.Cleanup(func() {
		if err := host.Close(); err != nil {
			tb.Error(err)
		}
	})
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return drivertest.Harness{
		New: func(_ testing.TB, state string) driver.Driver {
			return fake.New(fake.Config{Host: host, State: state, Unsupported: unsupported})
		},
		Rootfs:  driver.Rootfs{Layers: []string{tb.TempDir()}},
		Guest:   driver.Guest{Path: program},
		NoWalls: noWalls,
		Damage:  func(_ testing.TB, _, id string) { host.Break(id) },
		DamageMemory: func(_ testing.TB, _, id string) {
			host.SpoilMemory(id, "its memory image is damaged")
		},
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(t, nil))
}

func TestConformanceWithoutLimits(t *testing.T) {
	const reason = "not on this machine"
	drivertest.Run(t, harness(t, map[string]string{
		driver.FeatureMemoryLimit: reason, driver.FeatureCPULimit: reason, driver.FeatureDiskLimit: reason,
		driver.FeatureProcessLimit: reason, driver.FeatureHostDirs: reason,
	}))
}

// spec is a good spec.
func spec(t *testing.T, id string) driver.Spec {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return driver.Spec{ID: id, Rootfs: driver.Rootfs{Layers: []string{t.TempDir()}}, Guest: driver.Guest{Path: program}}
}

// boot makes a driver of its own and a running sandbox "box".
func boot(t *testing.T) (*fake.Driver, *guest.Conn) {
	t.Helper()
	d := fake.New(fake.Config{})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	s := spec(t, "box")
	s.Limits.MemoryBytes = 64 << 20
	if err := d.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	return d, connect(t, d)
}

func connect(t *testing.T, d *fake.Driver) *guest.Conn {
	t.Helper()
	stream, err := d.Dial(t.Context(), "box")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := guest.Connect(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestFailNth(t *testing.T) {
	host := fake.NewHost()
	defer host.Close()
	d := fake.New(fake.Config{Host: host})
	broken := errors.New("arranged")
	host.FailNext(fake.Create, broken)
	host.FailNth(fake.Create, 3, broken)
	for i, want := range []error{broken, nil, broken, nil} {
		if err := d.Create(t.Context(), spec(t, "box"+string(rune('a'+i)))); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
	if n := host.Calls(fake.Create); n != 4 {
		t.Errorf("%d calls were counted", n)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("list is %v, %v", list, err)
	}
}

func TestHold(t *testing.T) {
	host := fake.NewHost()
	defer host.Close()
	d := fake.New(fake.Config{Host: host})
	gate := host.Hold(fake.Create)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer gate.Open()

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	wg.Go(func() { cancelled <- d.Create(ctx, spec(t, "one")) })
	<-gate.Entered()
	cancel()
	if err := <-cancelled; !fault.Is(err, fault.Cancelled) {
		t.Errorf("cancelled at the gate: %v", err)
	}

	passed := make(chan error, 1)
	wg.Go(func() { passed <- d.Create(t.Context(), spec(t, "two")) })
	<-gate.Entered()
	gate.Open()
	if err := <-passed; err != nil {
		t.Errorf("through the open gate: %v", err)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "two" {
		t.Errorf("list is %v, %v", list, err)
	}
}

func TestDeaths(t *testing.T) {
	for _, tt := range []struct {
		name string
		die  func(*fake.Host)
		want driver.Exit
	}{
		{"kill", func(h *fake.Host) { h.Kill("box") }, driver.Exit{Reason: "killed"}},
		{"out of memory", func(h *fake.Host) { h.OOM("box") }, driver.Exit{OOM: true, Reason: "out of memory (limit 64Mi)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, conn := boot(t)
			p, err := conn.Start(t.Context(), guest.Command{ID: "p", Args: []string{"sleep", "1000"}}, guest.Output{})
			if err != nil {
				t.Fatal(err)
			}
			tt.die(d.Host())
			s, err := d.Wait(t.Context(), "box")
			if err != nil || s.State != driver.Stopped || s.Exit != tt.want {
				t.Errorf("%+v, %v", s, err)
			}
			<-conn.Done()
			if _, err := p.Wait(t.Context()); !errors.Is(err, guest.ErrLost) {
				t.Errorf("the process: %v", err)
			}
		})
	}
}

func TestDropStreams(t *testing.T) {
	d, conn := boot(t)
	p, err := conn.Start(t.Context(), guest.Command{ID: "p", Args: []string{"cat"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	d.Host().DropStreams("box")
	<-conn.Done()
	if _, err := p.Wait(t.Context()); !errors.Is(err, guest.ErrLost) {
		t.Errorf("wait: %v", err)
	}
	again, err := connect(t, d).Attach(t.Context(), "p", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if exit, err := again.Wait(t.Context()); err != nil || exit.Status() != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestEscapedProcesses holds that not even a daemon outlives its sandbox.
func TestEscapedProcesses(t *testing.T) {
	d, conn := boot(t)
	p, err := conn.Start(t.Context(), guest.Command{
		ID: "p", NoStdin: true, Args: []string{"/bin/sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid"},
	}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(d.Host().Dir("box") + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), "box", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile("/proc/" + string(pid[:len(pid)-1]) + "/environ")
	if err == nil && len(env) > 0 {
		t.Errorf("process %s still runs", pid)
	}
}

func BenchmarkDriver(b *testing.B) { drivertest.Benchmark(b, harness(b, nil)) }
