package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestExecutionTimesOut(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "1000"}, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	x, err = a.Execution(t.Context(), x.ID, time.Minute)
	if err != nil || x.Status != sandbox.ExecTimeout || x.ExitCode == nil || *x.ExitCode != sandbox.ExitTimeout {
		t.Fatalf("execution %+v, %v", x, err)
	}
	w.status(s.ID, sandbox.Idle)
}

func TestExecutionsAreSerialised(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	w.status(s.ID, sandbox.Running)
	_, err = a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}})
	wantCode(t, err, fault.Busy)
	if err := a.Cancel(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	if x, err = a.Execution(t.Context(), x.ID, 0); err != nil || x.Status != sandbox.ExecCancelled {
		t.Fatalf("after cancel: %+v, %v", x, err)
	}
	w.status(s.ID, sandbox.Idle)
	if err := a.Cancel(t.Context(), x.ID); err != nil {
		t.Fatalf("cancel again: %v", err)
	}
	if x, _ := w.exec(alice, s.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Fatalf("after cancel the sandbox runs %+v", x)
	}
	all, err := a.Executions(t.Context(), s.ID, 0)
	if err != nil || len(all) != 2 {
		t.Fatalf("history %v, %v", all, err)
	}
	if got, err := a.Get(t.Context(), s.ID); err != nil || got.Executions != 2 {
		t.Fatalf("counted %d, %v", got.Executions, err)
	}
}

// What follows the output sees all of it, although only the cap is kept.
func TestOutputBeyondTheCap(t *testing.T) {
	const limit, total = 64 << 10, 8 << 20
	w := newWorld(t, func(c *sandbox.Config) { c.OutputCap = limit })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Stdin: true, Command: []string{"sh", "-c", "read go; head -c 8388608 /dev/zero | tr '\\0' x"}})
	if err != nil {
		t.Fatal(err)
	}
	sum, size := sha256.New(), &counter{}
	followed := make(chan error, 1)
	go func() { followed <- a.Output(t.Context(), x.ID, sandbox.Stdout, io.MultiWriter(sum, size)) }()
	if err := a.WriteStdin(t.Context(), x.ID, strings.NewReader("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(bytes.Repeat([]byte("x"), total))
	if size.n != total || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Fatalf("the follower got %d bytes of %d", size.n, total)
	}
	x, err = a.Execution(t.Context(), x.ID, time.Minute)
	if err != nil || !x.OutputTruncated || x.StdoutBytes != limit {
		t.Fatalf("record %+v, %v", x, err)
	}
	if kept := w.output(alice, x.ID, sandbox.Stdout); len(kept) != limit {
		t.Fatalf("kept %d bytes, want %d", len(kept), limit)
	}
}

// A follower that gives up does not hold the command back.
func TestFollowerGoesAway(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.OutputCap = 1 << 10 })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Stdin: true, Command: []string{"sh", "-c", "echo; read go; head -c 8388608 /dev/zero"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe() // nobody reads beyond the first byte
	left := make(chan error, 1)
	go func() { left <- a.Output(ctx, x.ID, sandbox.Stdout, pw) }()
	if _, err := io.ReadFull(pr, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteStdin(t.Context(), x.ID, strings.NewReader("go\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	pr.Close()
	if err := <-left; err == nil {
		t.Fatal("the follower that gave up got no error")
	}
	if x, err = a.Execution(t.Context(), x.ID, time.Minute); err != nil || x.Status != sandbox.ExecCompleted {
		t.Fatalf("execution %+v, %v", x, err)
	}
}

func TestCommandNotFound(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x, _ := w.exec(alice, s.ID, "no-such-program")
	if x.ExitCode == nil || *x.ExitCode != 127 {
		t.Fatalf("execution %+v", x)
	}
	if e := w.output(alice, x.ID, sandbox.Stderr); !strings.Contains(e, "no-such-program") {
		t.Fatalf("stderr %q", e)
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }
