package fake_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// TestConformanceWithoutAbilities is a driver that has none of the optional
// capabilities, as far as it says.
func TestConformanceWithoutAbilities(t *testing.T) {
	const reason = "not on this machine"
	drivertest.Run(t, harness(t, map[string]string{
		driver.FeatureSave: reason, driver.FeatureCheckpoint: reason, driver.FeatureResize: reason, driver.FeatureNetwork: reason,
	}))
}

// calls are all optional operations on the sandbox "box".
func calls(t *testing.T, d *fake.Driver) map[fake.Op]func() error {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	return map[fake.Op]func() error{
		fake.Save:    func() error { return d.Save(t.Context(), "box", dir) },
		fake.Restore: func() error { return d.Restore(t.Context(), "box", dir) },
		fake.Export:  func() error { return d.Export(t.Context(), dir, io.Discard) },
		fake.Import:  func() error { return d.Import(t.Context(), dir, &bytes.Buffer{}, 0) },
		fake.Discard: func() error { return d.Discard(t.Context(), dir) },
		fake.Suspend: func() error { return d.Suspend(t.Context(), "box") },
		fake.Resume:  func() error { _, err := d.Resume(t.Context(), "box"); return err },
		fake.Resize:  func() error { return d.Resize(t.Context(), "box", driver.Limits{Processes: 5}) },
	}
}

func TestFaultsOfAbilities(t *testing.T) {
	d, conn := boot(t)
	broken := errors.New("arranged")
	for op, call := range calls(t, d) {
		d.Host().FailNext(op, broken)
		if err := call(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", op, err)
		}
		if n := d.Host().Calls(op); n != 1 {
			t.Errorf("%s: %d calls were counted", op, n)
		}
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Errorf("a call that failed before it did anything has ended the sandbox: %v", err)
	}
	if got := d.Host().Spec("box").Limits.Processes; got != 0 {
		t.Errorf("a resize that failed has made the limit %d", got)
	}
}

func TestUnsupportedAbilities(t *testing.T) {
	unsupported := map[string]string{}
	for _, f := range []string{driver.FeatureSave, driver.FeatureCheckpoint, driver.FeatureResize, driver.FeatureNetwork} {
		unsupported[f] = "not here"
	}
	d := fake.New(fake.Config{Unsupported: unsupported})
	defer d.Close()
	for op, call := range calls(t, d) {
		if err := call(); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%s: %v", op, err)
		}
	}
	s := spec(t, "box")
	s.Network = true
	if err := d.Create(t.Context(), s); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a network: %v", err)
	}
	s = spec(t, "box")
	s.Rootfs.Saved = []string{t.TempDir()}
	if err := d.Create(t.Context(), s); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a saved layer: %v", err)
	}
}

func TestResize(t *testing.T) {
	d, _ := boot(t)
	d.Host().SetUsage("box", driver.Usage{MemoryBytes: 32 << 20, Processes: 3, DiskBytes: -1})
	next := driver.Limits{MemoryBytes: 128 << 20, CPUMillis: 500, DiskBytes: 1 << 30, Processes: 10}
	if err := d.Resize(t.Context(), "box", next); err != nil {
		t.Fatal(err)
	}
	if err := d.Resize(t.Context(), "box", driver.Limits{MemoryBytes: 16 << 20}); !fault.Is(err, fault.Invalid) {
		t.Errorf("below what is used: %v", err)
	}
	if got := d.Host().Spec("box").Limits; got != next {
		t.Errorf("the limits are %+v", got)
	}
	d.Host().OOM("box")
	s, err := d.Inspect(t.Context(), "box")
	if err != nil || s.Exit.Reason != "out of memory (limit 128Mi)" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestCloseEndsSuspended holds that a suspended sandbox leaves no stopped
// process behind.
func TestCloseEndsSuspended(t *testing.T) {
	host := fake.NewHost()
	d := fake.New(fake.Config{Host: host})
	if err := d.Create(t.Context(), spec(t, "box")); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	stream, err := d.Dial(t.Context(), "box")
	if err != nil {
		t.Fatal(err)
	}
	pid := sleeper(t, stream)
	if err := d.Suspend(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + pid); err != nil {
		t.Errorf("the process of a suspended sandbox: %v", err)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil && len(b) > 0 {
		t.Errorf("process %s is left", pid)
	}
}

// sleeper starts a process that sleeps.
func sleeper(t *testing.T, stream io.ReadWriteCloser) string {
	t.Helper()
	conn, err := guest.Connect(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := conn.Start(t.Context(), guest.Command{ID: "sleeper", Args: []string{"sleep", "1000"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return strconv.Itoa(p.PID())
}
