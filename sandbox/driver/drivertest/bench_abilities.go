package drivertest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// benchmarkAbilities measures what a driver can do beyond the contract with a
// sandbox that has written 10 MB and holds a process.
func benchmarkAbilities(b *testing.B, d driver.Driver, spec driver.Spec) {
	b.Helper()
	caps, err := d.Capabilities(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	spec.ID = newID()
	if err := d.Create(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := d.Remove(b.Context(), spec.ID); err != nil {
			b.Error(err)
		}
	}()
	if err := d.Start(b.Context(), spec.ID); err != nil {
		b.Fatal(err)
	}
	conn := benchmarkConnect(b, d, spec.ID)
	benchmarkExec(b, conn, "i=0; while [ $i -lt 10 ]; do i=$((i+1)); head -c 1048576 /dev/urandom >f$i; done", io.Discard)
	if _, err := conn.Start(b.Context(), guest.Command{ID: newID(), NoStdin: true, Args: []string{"sleep", "100000"}}, guest.Output{}); err != nil {
		b.Fatal(err)
	}
	conn.Close()
	if s, ok := d.(driver.Saver); ok && caps.Support[driver.FeatureSave].OK {
		b.Run("Save10MB", func(b *testing.B) { benchmarkSave(b, d, s, spec) })
	}
	if s, ok := d.(driver.Suspender); ok && caps.Support[driver.FeatureCheckpoint].OK {
		b.Run("SuspendResume", func(b *testing.B) { benchmarkSuspend(b, s, spec.ID) })
	}
}

// benchmarkSave saves a running sandbox and makes another of it, up to the
// first answer.
func benchmarkSave(b *testing.B, d driver.Driver, s driver.Saver, spec driver.Spec) {
	parts := newLaps(b)
	parent, err := os.MkdirTemp("", "sgt")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(parent)
	for b.Loop() {
		dir := filepath.Join(parent, newID())
		parts.start()
		if err := s.Save(b.Context(), spec.ID, dir); err != nil {
			b.Fatal(err)
		}
		parts.lap("save-ms/op")
		made := spec
		made.ID, made.Rootfs.Saved = newID(), []string{dir}
		if err := d.Create(b.Context(), made); err != nil {
			b.Fatal(err)
		}
		if err := d.Start(b.Context(), made.ID); err != nil {
			b.Fatal(err)
		}
		benchmarkConnect(b, d, made.ID).Close()
		parts.lap("create-from-ms/op")
		if err := d.Remove(b.Context(), made.ID); err != nil {
			b.Fatal(err)
		}
		if err := s.Discard(b.Context(), dir); err != nil {
			b.Fatal(err)
		}
	}
	parts.report()
}

func benchmarkSuspend(b *testing.B, s driver.Suspender, id string) {
	parts := newLaps(b)
	for b.Loop() {
		parts.start()
		if err := s.Suspend(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		parts.lap("suspend-ms/op")
		how, err := s.Resume(b.Context(), id)
		if err != nil || !how.Memory {
			b.Fatalf("%+v, %v", how, err)
		}
		parts.lap("resume-ms/op")
	}
	parts.report()
}

// laps are the parts of an operation.
type laps struct {
	b     *testing.B
	last  float64
	parts map[string]float64
}

func newLaps(b *testing.B) *laps { return &laps{b: b, parts: make(map[string]float64)} }

func (l *laps) start() { l.last = l.b.Elapsed().Seconds() * 1e3 }

func (l *laps) lap(name string) {
	now := l.b.Elapsed().Seconds() * 1e3
	l.parts[name] += now - l.last
	l.last = now
}

func (l *laps) report() {
	for name, ms := range l.parts {
		l.b.ReportMetric(ms/float64(l.b.N), name)
	}
}
