package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// job starts one, or fails the test.
func (w *world) job(ref string, args ...string) sandbox.Job {
	w.t.Helper()
	j, err := w.engine.As(alice).CreateJob(w.t.Context(), ref, sandbox.JobRequest{Command: args})
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// ended waits for the end of a job and returns its record.
func (w *world) ended(id string) sandbox.Job {
	w.t.Helper()
	j, err := w.engine.As(alice).Job(w.t.Context(), id, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	if !j.Status.Done() {
		w.t.Fatalf("job %s is still %s", id, j.Status)
	}
	return j
}

func (w *world) jobOutput(id string, o sandbox.OutputOptions) string {
	w.t.Helper()
	var b bytes.Buffer
	if err := w.engine.As(alice).JobOutput(w.t.Context(), id, sandbox.Stdout, o, &b); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// prints waits until a job has printed a line.
func (w *world) prints(id, line string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(w.engine.As(alice).JobOutput(ctx, id, sandbox.Stdout, sandbox.OutputOptions{Follow: true}, pw))
	}()
	defer pr.Close()
	var seen []byte
	for buf := make([]byte, 512); !strings.Contains(string(seen), line+"\n"); {
		n, err := pr.Read(buf)
		if seen = append(seen, buf[:n]...); err != nil {
			w.t.Fatalf("job %s printed %q: %v", id, seen, err)
		}
	}
}

func TestJobLife(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Env: map[string]string{"COLOUR": "red"}})
	a := w.engine.As(alice)
	j, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"sh", "-c", "echo $COLOUR$N; pwd; echo err >&2; exit 3"}, Env: map[string]string{"N": "1"}, Dir: "/"})
	if err != nil || j.Status != sandbox.JobRunning || j.StartedAt.IsZero() {
		t.Fatalf("created %+v, %v", j, err)
	}
	j = w.ended(j.ID)
	if j.Status != sandbox.JobFailed || j.ExitCode == nil || *j.ExitCode != 3 || j.EndedAt.IsZero() || j.StdoutBytes != 7 || j.StderrBytes != 4 {
		t.Errorf("ended %+v", j)
	}
	if out := w.jobOutput(j.ID, sandbox.OutputOptions{}); out != "red1\n/\n" {
		t.Errorf("printed %q", out)
	}
	ok := w.ended(w.job(s.ID, "true").ID)
	if ok.Status != sandbox.JobCompleted || *ok.ExitCode != 0 {
		t.Errorf("ended %+v", ok)
	}
	if none := w.ended(w.job(s.ID, "no-such-program").ID); none.Status != sandbox.JobFailed || *none.ExitCode != 127 {
		t.Errorf("ended %+v", none)
	}
	page, total, err := a.Jobs(t.Context(), s.ID, 2, 1)
	if err != nil || total != 3 || len(page) != 2 || page[1].ID != j.ID {
		t.Errorf("jobs %+v of %d, %v", page, total, err)
	}
	want := []string{"create", "lifecycle:started", "job:created", "job:started", "job:ended"}
	if got := w.events(s.ID)[:5]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %v", got)
	}
	// It does not keep the sandbox from executing.
	sleeping := w.job(s.ID, "sleep", "1000")
	if x, _ := w.exec(alice, s.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("execution beside a job: %+v", x)
	}
	if err := a.Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if j := w.ended(sleeping.ID); j.Status != sandbox.JobCancelled || j.Error == "" {
		t.Errorf("job of a deleted sandbox %+v", j)
	}
}

func TestJobStop(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.JobGrace = 200 * time.Millisecond })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)

	polite := w.job(s.ID, "sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
	w.prints(polite.ID, "up")
	j, err := a.StopJob(t.Context(), polite.ID, false)
	if err != nil || j.Status != sandbox.JobCancelled || j.ExitCode == nil || *j.ExitCode != 7 {
		t.Errorf("stopped %+v, %v", j, err)
	}
	if out := w.jobOutput(j.ID, sandbox.OutputOptions{}); out != "up\nbye\n" {
		t.Errorf("printed %q", out)
	}
	if again, err := a.StopJob(t.Context(), polite.ID, true); err != nil || again.Status != sandbox.JobCancelled {
		t.Errorf("stopped again %+v, %v", again, err)
	}

	// Its children are in groups of their own, ignore SIGTERM, and hold its output.
	stubborn := w.job(s.ID, "bash", "-c", "set -m; trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo up; wait; while :; do sleep 0.01; done")
	w.prints(stubborn.ID, "up")
	j, err = a.StopJob(t.Context(), stubborn.ID, false)
	if err != nil || j.Status != sandbox.JobCancelled || *j.ExitCode != 128+9 {
		t.Errorf("stopped %+v, %v", j, err)
	}
}

// A stop with force does not wait for the grace period, its own or another's.
func TestJobForce(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.JobGrace = time.Hour })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	const deaf = "trap 'echo no' TERM; echo up; while :; do sleep 0.01; done"
	forced := w.job(s.ID, "sh", "-c", deaf)
	w.prints(forced.ID, "up")
	if j, err := a.StopJob(t.Context(), forced.ID, true); err != nil || j.Status != sandbox.JobCancelled || *j.ExitCode != 128+9 {
		t.Errorf("stopped %+v, %v", j, err)
	}
	hurried := w.job(s.ID, "sh", "-c", deaf)
	w.prints(hurried.ID, "up")
	first := make(chan error, 1)
	go func() { _, err := a.StopJob(t.Context(), hurried.ID, false); first <- err }()
	w.prints(hurried.ID, "no") // the first one waits for the grace period
	if j, err := a.StopJob(t.Context(), hurried.ID, true); err != nil || j.Status != sandbox.JobCancelled {
		t.Errorf("stopped %+v, %v", j, err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestManyJobs(t *testing.T) {
	const n = 64
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	ids := make(chan string, n)
	for i := range n {
		go func() {
			j, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"sh", "-c", fmt.Sprintf("echo %d; while [ ! -e go ]; do sleep 0.05; done; exit %d", i, i)}})
			if err != nil {
				t.Error(err)
			}
			ids <- j.ID
		}()
	}
	all := map[string]bool{}
	for range n {
		all[<-ids] = true
	}
	_, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"true"}})
	wantCode(t, err, fault.Exhausted)
	if err := a.WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	codes := map[int]bool{}
	for id := range all {
		j := w.ended(id)
		codes[*j.ExitCode] = true
		if out := w.jobOutput(id, sandbox.OutputOptions{}); out != fmt.Sprintln(*j.ExitCode) {
			t.Errorf("job with the exit code %d printed %q", *j.ExitCode, out)
		}
	}
	if len(all) != n || len(codes) != n {
		t.Errorf("%d jobs with %d exit codes", len(all), len(codes))
	}
	w.ended(w.job(s.ID, "true").ID) // there is room again
}

// A stranger cannot tell somebody else's job from one that is not there.
func TestForeignJobLooksMissing(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "true")
	other := w.engine.As(bob)
	const none = "job_aaaaaaaaaaaa"
	for name, op := range map[string]func(id string) error{
		"get":  func(id string) error { _, err := other.Job(t.Context(), id, 0); return err },
		"stop": func(id string) error { _, err := other.StopJob(t.Context(), id, true); return err },
		"output": func(id string) error {
			return other.JobOutput(t.Context(), id, sandbox.Stdout, sandbox.OutputOptions{}, io.Discard)
		},
	} {
		foreign, missing := op(j.ID), op(none)
		wantCode(t, foreign, fault.NotFound)
		if a, b := strings.ReplaceAll(foreign.Error(), j.ID, none), missing.Error(); a != b {
			t.Errorf("%s: foreign says %q, missing says %q", name, a, b)
		}
	}
	_, _, err := other.Jobs(t.Context(), s.ID, 0, 0)
	wantCode(t, err, fault.NotFound)
	_, err = other.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"true"}})
	wantCode(t, err, fault.NotFound)
}
