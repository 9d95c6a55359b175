package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// What runs in a sandbox that is paused with its memory goes on after the
// resume, under whichever server, and loses no output and no exit code.
func TestCommandsOutliveAPause(t *testing.T) {
	const lines = 400
	w := newWorld(t, func(c *sandbox.Config) { c.ExecTimeout = time.Hour })
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sh", "-c", numbers(lines))
	x, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sh", "-c", numbers(lines)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		w.prints(j.ID, []string{"line 5", "line 20", "line 40", "line 60"}[i])
		paused, err := w.engine.As(alice).Pause(t.Context(), s.ID)
		if err != nil || !paused.Memory {
			t.Fatalf("paused %+v, %v", paused, err)
		}
		if i%2 == 1 {
			if r := w.restart(); r.Jobs != 1 || r.Executions != 1 {
				t.Fatalf("found again: %+v", r)
			}
		}
		if j, err := w.engine.As(alice).Job(t.Context(), j.ID, 0); err != nil || j.Status != sandbox.JobRunning {
			t.Fatalf("while it is paused: %+v, %v", j, err)
		}
		if _, err := w.engine.As(alice).Resume(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if j = w.ended(j.ID); j.ExitCode == nil || *j.ExitCode != 5 {
		t.Errorf("job %+v", j)
	}
	if x = w.execEnded(x.ID); x.ExitCode == nil || *x.ExitCode != 5 {
		t.Errorf("execution %+v", x)
	}
	if out := w.jobOutput(j.ID, sandbox.OutputOptions{}); out != wantNumbers(lines) {
		t.Errorf("the job printed %d bytes, want %d", len(out), len(wantNumbers(lines)))
	}
	if out := w.output(alice, x.ID, sandbox.Stdout); out != wantNumbers(lines) {
		t.Errorf("the execution printed %d bytes, want %d", len(out), len(wantNumbers(lines)))
	}
}

// Stopping what sleeps resumes the sandbox: nothing can end in one that is
// paused. Executing in it says that it was resumed for that.
func TestStopWhatIsPaused(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	j := w.job(s.ID, "sleep", "1000")
	if _, err := a.Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if j, err := a.StopJob(t.Context(), j.ID, false); err != nil || j.Status != sandbox.JobCancelled || *j.ExitCode != 128+15 {
		t.Fatalf("stopped %+v, %v", j, err)
	}
	w.status(s.ID, sandbox.Idle)
	if _, err := a.Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if x, _ := w.exec(alice, s.ID, "true"); !x.AutoResumed {
		t.Errorf("execution %+v", x)
	}
	if x, _ := w.exec(alice, s.ID, "true"); x.AutoResumed {
		t.Errorf("execution %+v", x)
	}
}

// The time of an execution stands still while it is paused.
func TestTimeoutStandsStill(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sh", "-c", "while [ ! -e go ]; do sleep 0.01; done"}, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	w.now.advance(24 * time.Hour)
	w.restart()
	if _, err := w.engine.As(alice).Resume(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	if x = w.execEnded(x.ID); x.Status != sandbox.ExecCompleted {
		t.Errorf("execution %+v", x)
	}
}

// Where the memory is lost, so are the commands, and they say why.
func TestCommandsEndWithTheMemory(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sleep", "1000")
	if _, err := w.engine.As(alice).Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	w.host.SpoilMemory(s.ID, "another build")
	if _, err := w.engine.As(alice).Resume(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if j = w.ended(j.ID); j.Status != sandbox.JobFailed || !strings.Contains(j.Error, "resumed without") {
		t.Errorf("job %+v", j)
	}
	w.status(s.ID, sandbox.Idle)
}
