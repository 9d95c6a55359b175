package drivertest

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Benchmark measures a driver: one life to the first answer of the guest, each
// part of it for itself, saving and suspending where that can be done, a
// stream in a running sandbox, and a command.
//
// Every part is reported in milliseconds per operation under its own name.
func Benchmark(b *testing.B, h Harness) {
	b.Helper()
	state, err := os.MkdirTemp("", "sgt")
	if err != nil {
		b.Fatal(err)
	}
	d := h.New(b, state)
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
		if err := os.RemoveAll(state); err != nil {
			b.Error(err)
		}
	})
	spec := driver.Spec{ID: newID(), Rootfs: h.Rootfs, Guest: h.Guest}
	// What is cached by digest is made before anything is measured.
	if err := d.Create(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	if err := d.Remove(b.Context(), spec.ID); err != nil {
		b.Fatal(err)
	}
	b.Run("Life", func(b *testing.B) { benchmarkLife(b, d, spec) })
	benchmarkAbilities(b, d, spec)

	if err := d.Create(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := d.Remove(context.Background(), spec.ID); err != nil {
			b.Error(err)
		}
	}()
	if err := d.Start(b.Context(), spec.ID); err != nil {
		b.Fatal(err)
	}
	b.Run("Dial", func(b *testing.B) {
		for b.Loop() {
			benchmarkConnect(b, d, spec.ID).Close()
		}
	})
	conn := benchmarkConnect(b, d, spec.ID)
	defer conn.Close()
	b.Run("Ping", func(b *testing.B) {
		for b.Loop() {
			if err := conn.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Exec", func(b *testing.B) {
		for b.Loop() {
			benchmarkExec(b, conn, "/bin/true", nil)
		}
	})
	b.Run("Files", func(b *testing.B) { benchmarkFiles(b, conn) })
	b.Run("Output", func(b *testing.B) { // 64 MiB out of a process
		b.SetBytes(64 << 20)
		for b.Loop() {
			benchmarkExec(b, conn, "exec head -c 67108864 /dev/zero", io.Discard)
		}
	})
}

// benchmarkLife takes sandboxes through create, start, first answer and remove.
func benchmarkLife(b *testing.B, d driver.Driver, spec driver.Spec) {
	b.Helper()
	parts := newLaps(b)
	parts.start()
	for b.Loop() {
		spec.ID = newID()
		if err := d.Create(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
		parts.lap("create-ms/op")
		if err := d.Start(b.Context(), spec.ID); err != nil {
			b.Fatal(err)
		}
		parts.lap("start-ms/op")
		conn := benchmarkConnect(b, d, spec.ID)
		parts.lap("dial-ms/op")
		benchmarkExec(b, conn, "/bin/true", nil)
		parts.lap("exec-ms/op")
		conn.Close()
		if err := d.Remove(b.Context(), spec.ID); err != nil {
			b.Fatal(err)
		}
		parts.lap("remove-ms/op")
	}
	parts.report()
}

func benchmarkConnect(b *testing.B, d driver.Driver, id string) *guest.Conn {
	b.Helper()
	stream, err := d.Dial(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := guest.Connect(b.Context(), stream)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// benchmarkExec runs a program, or a script when its output is wanted.
func benchmarkExec(b *testing.B, conn *guest.Conn, program string, out io.Writer) {
	b.Helper()
	args := []string{program}
	if out != nil {
		args = []string{"/bin/sh", "-c", program}
	}
	p, err := conn.Start(b.Context(), guest.Command{ID: newID(), NoStdin: true, Args: args}, guest.Output{Stdout: out})
	if err != nil {
		b.Fatal(err)
	}
	if exit, err := p.Wait(b.Context()); err != nil || exit.Status() != 0 {
		b.Fatalf("%+v, %v", exit, err)
	}
}
