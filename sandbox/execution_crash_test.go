package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// numbers is a script that prints the numbers up to n, to both streams in turn.
func numbers(n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; echo line $i >&2; sleep 0.002; done; exit 5", n)
}

func wantNumbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, "line", i+1)
	}
	return b.String()
}

// A server that dies again and again loses nothing of what a job and an
// execution print, and prints nothing twice.
func TestCrashesLoseNoOutput(t *testing.T) {
	const crashes, lines = 100, 600
	w := newWorld(t, func(c *sandbox.Config) { c.ExecTimeout = time.Hour })
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sh", "-c", numbers(lines))
	x, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sh", "-c", numbers(lines)}})
	if err != nil {
		t.Fatal(err)
	}
	under := 0
	for range crashes {
		if r := w.restart(); r.Jobs == 1 && r.Executions == 1 {
			under++
		}
	}
	if j = w.ended(j.ID); j.ExitCode == nil || *j.ExitCode != 5 || j.OutputTruncated {
		t.Errorf("the job ended %+v", j)
	}
	a := w.engine.As(alice)
	if x, err = a.Execution(t.Context(), x.ID, time.Minute); err != nil || x.ExitCode == nil || *x.ExitCode != 5 || x.OutputTruncated {
		t.Errorf("the execution ended %+v, %v", x, err)
	}
	t.Logf("%d of %d crashes came while both were under way", under, crashes)
	if under < 10 {
		t.Errorf("only %d crashes hit", under)
	}
	for _, st := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		if out := w.output(alice, x.ID, st); out != wantNumbers(lines) {
			t.Errorf("%s of the execution differs: %d bytes, want %d", st, len(out), len(wantNumbers(lines)))
		}
		var b strings.Builder
		if err := a.JobOutput(t.Context(), j.ID, st, sandbox.OutputOptions{}, &b); err != nil || b.String() != wantNumbers(lines) {
			t.Errorf("%s of the job differs: %d bytes, want %d (%v)", st, b.Len(), len(wantNumbers(lines)), err)
		}
	}
}

// One stream is beyond the cap and the other is not: what a server that comes
// after takes of the second is exact all the same.
func TestCrashBeyondTheCap(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.OutputCap = 1000 })
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sh", "-c", "head -c 5000 /dev/zero; echo one >&2; while [ ! -e go ]; do sleep 0.01; done; head -c 5000 /dev/zero; echo two >&2")
	stderr := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var b strings.Builder
		for b.String() != want && ctx.Err() == nil {
			b.Reset()
			if err := w.engine.As(alice).JobOutput(ctx, j.ID, sandbox.Stderr, sandbox.OutputOptions{}, &b); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Fatalf("stderr %q, want %q", b.String(), want)
		}
	}
	stderr("one\n")
	for range 3 {
		w.restart()
	}
	stderr("one\n")
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	if j = w.ended(j.ID); j.StdoutBytes != 1000 || !j.OutputTruncated || j.StderrBytes != 8 {
		t.Errorf("ended %+v", j)
	}
	stderr("one\ntwo\n")
}

// deaf is a store that does not take the ends of commands while it is closed.
type deaf struct {
	sandbox.Store
	closed *atomic.Bool
}

var errDeaf = errors.New("the disk is full")

func (d deaf) UpdateExecution(ctx context.Context, id string, change func(*sandbox.Execution) ([]sandbox.Event, error)) (sandbox.Execution, error) {
	if d.closed.Load() {
		return sandbox.Execution{}, errDeaf
	}
	return d.Store.UpdateExecution(ctx, id, change)
}

func (d deaf) UpdateJob(ctx context.Context, id string, change func(*sandbox.Job) ([]sandbox.Event, error)) (sandbox.Job, error) {
	if d.closed.Load() {
		return sandbox.Job{}, errDeaf
	}
	return d.Store.UpdateJob(ctx, id, change)
}

// The server dies after a command has ended and before that is written down.
func TestCrashBeforeTheEndIsRecorded(t *testing.T) {
	var closed atomic.Bool
	w := newWorld(t, func(c *sandbox.Config) { c.Store = deaf{c.Store, &closed} })
	s := w.create(alice, sandbox.CreateRequest{})
	const script = "echo before; while [ ! -e go ]; do sleep 0.01; done; echo after; exit 9"
	j := w.job(s.ID, "sh", "-c", script)
	x, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	// This server knows and tells it, although it cannot write it down.
	if j := w.ended(j.ID); *j.ExitCode != 9 {
		t.Fatalf("job %+v", j)
	}
	if x, err := w.engine.As(alice).Execution(t.Context(), x.ID, time.Minute); err != nil || x.ExitCode == nil || *x.ExitCode != 9 {
		t.Fatalf("execution %+v, %v", x, err)
	}
	w.close() // with the ends unwritten
	closed.Store(false)
	if r := w.open(); r.Jobs != 1 || r.Executions != 1 {
		t.Fatalf("found again: %+v", r)
	}
	j = w.ended(j.ID)
	if x, err = w.engine.As(alice).Execution(t.Context(), x.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	if j.ExitCode == nil || *j.ExitCode != 9 || x.ExitCode == nil || *x.ExitCode != 9 {
		t.Errorf("ended %+v and %+v", j, x)
	}
	if out := w.output(alice, x.ID, sandbox.Stdout) + w.jobOutput(j.ID, sandbox.OutputOptions{}); out != "before\nafter\nbefore\nafter\n" {
		t.Errorf("printed %q", out)
	}
	w.forgotten(s.ID)
}

// forgotten waits until the guest of a sandbox keeps no process any more.
func (w *world) forgotten(id string) {
	w.t.Helper()
	stream, err := fake.New(fake.Config{Host: w.host}).Dial(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := guest.Connect(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for {
		list, err := conn.List(ctx)
		if err != nil {
			w.t.Fatalf("the guest still keeps something: %v", err)
		}
		if len(list) == 0 {
			return
		}
	}
}

// The connection to the guest is lost in the middle, many times.
func TestJobOutlivesItsConnection(t *testing.T) {
	const lines = 300
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sh", "-c", numbers(lines))
	for i := range 5 {
		w.prints(j.ID, fmt.Sprint("line ", 10+40*i))
		w.host.DropStreams(s.ID)
	}
	if j = w.ended(j.ID); j.ExitCode == nil || *j.ExitCode != 5 {
		t.Errorf("ended %+v", j)
	}
	if out := w.jobOutput(j.ID, sandbox.OutputOptions{}); out != wantNumbers(lines) {
		t.Errorf("printed %d bytes, want %d", len(out), len(wantNumbers(lines)))
	}
}
