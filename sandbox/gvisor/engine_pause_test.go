package gvisor

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// TestPauseOfWhole pauses a sandbox in which a job counts and a command waits:
// both go on where they were when the sandbox is used again.
func TestPauseOfWhole(t *testing.T) {
	w := newWhole(t)
	ctx := t.Context()
	_, err := w.Create(ctx, sandbox.CreateRequest{Name: "box"})
	w.ok(err)
	job, err := w.CreateJob(ctx, "box", sandbox.JobRequest{Command: []string{"sh", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"}})
	w.ok(err)
	w.sh("box", "mkfifo go")
	x, err := w.Execute(ctx, "box", sandbox.ExecRequest{Command: []string{"sh", "-c", "read word <go; echo $word; exit 4"}})
	w.ok(err)

	follow, stop := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- w.JobOutput(follow, job.ID, sandbox.Stdout, sandbox.OutputOptions{Follow: true}, pw)
	}()
	lines := bufio.NewReader(pr)
	count := 0
	next := func(n int) {
		t.Helper()
		for range n {
			line, err := lines.ReadString('\n')
			w.ok(err)
			if count++; strings.TrimSpace(line) != strconv.Itoa(count) {
				t.Fatalf("counted %q after %d", line, count-1)
			}
		}
	}
	next(5)
	for round := range 3 {
		began := time.Now()
		s, err := w.Pause(ctx, "box")
		w.ok(err)
		if !s.Memory || s.Status != sandbox.Paused {
			t.Fatalf("paused %+v", s)
		}
		pause := time.Since(began)
		if j, err := w.Job(ctx, job.ID, 0); err != nil || j.Status != sandbox.JobRunning {
			t.Fatalf("the job of the paused sandbox is %+v, %v", j, err)
		}
		began = time.Now()
		s, err = w.Resume(ctx, "box")
		w.ok(err)
		if s.Status != sandbox.Running {
			t.Errorf("resumed %+v", s)
		}
		t.Logf("round %d: paused in %s, resumed in %s", round, pause.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		next(count + 5) // more than was under way before
	}
	w.ok(w.WriteFile(ctx, "box", sandbox.File{Path: "word", Content: []byte("hello\n")}))
	_, err = w.Pause(ctx, "box")
	w.ok(err)
	p, err := w.Start(ctx, "box", guest.Command{Script: "cat word >go"}, guest.Output{})
	w.ok(err)
	_, err = p.Wait(ctx)
	w.ok(err)
	x, err = w.Execution(ctx, x.ID, time.Minute)
	if err != nil || x.ExitCode == nil || *x.ExitCode != 4 {
		t.Errorf("the command ended %+v, %v", x, err)
	}
	stop()
	pr.Close()
	<-ended
	if j, err := w.StopJob(ctx, job.ID, true); err != nil || j.Status != sandbox.JobCancelled {
		t.Errorf("the job ended %+v, %v", j, err)
	}
}
