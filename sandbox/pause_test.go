package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// waiting starts a command that says one, waits for the pipe "go", says two and
// ends with 5. It runs when waiting returns.
func (w *world) waiting(id string) sandbox.Execution {
	w.t.Helper()
	w.exec(alice, id, "mkfifo", "go", "ready")
	x, err := w.engine.As(alice).Execute(w.t.Context(), id, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "echo one; echo >ready; read x <go; echo two; exit 5"}, Timeout: time.Hour,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.shell(id, "cat ready")
	return x
}

// shell runs a command that is no execution.
func (w *world) shell(id, script string) {
	w.t.Helper()
	p, err := w.engine.As(alice).Start(w.t.Context(), id, guest.Command{Script: script}, guest.Output{})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := p.Wait(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// wentOn fails the test unless the command of waiting goes on and ends.
func (w *world) wentOn(x sandbox.Execution) {
	w.t.Helper()
	w.shell(x.SandboxID, "echo >go")
	x, err := w.engine.As(alice).Execution(w.t.Context(), x.ID, time.Minute)
	if err != nil || x.ExitCode == nil || *x.ExitCode != 5 {
		w.t.Fatalf("the command ended %+v, %v", x, err)
	}
	if out := w.output(alice, x.ID, sandbox.Stdout); out != "one\ntwo\n" {
		w.t.Errorf("it printed %q", out)
	}
}

// wasLost fails the test unless the command is recorded as lost for a reason.
func (w *world) wasLost(x sandbox.Execution, why string) {
	w.t.Helper()
	x, err := w.engine.As(alice).Execution(w.t.Context(), x.ID, time.Minute)
	if err != nil || x.Status != sandbox.ExecFailed || !strings.Contains(x.Error, why) {
		w.t.Errorf("the command ended %+v, %v; want a failure because of %q", x, err, why)
	}
}

// last returns the last event of a type.
func (w *world) last(id string, typ sandbox.EventType) sandbox.Event {
	w.t.Helper()
	evs, err := w.engine.As(admin).Events(w.t.Context(), id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ev := range slices.Backward(evs) {
		if ev.Type == typ {
			return ev
		}
	}
	w.t.Fatalf("there is no event %s", typ)
	return sandbox.Event{}
}

func (w *world) pause(id string) sandbox.Sandbox {
	w.t.Helper()
	s, err := w.engine.As(alice).Pause(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) resume(id string) sandbox.Sandbox {
	w.t.Helper()
	s, err := w.engine.As(alice).Resume(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestPauseKeepsProcesses(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Paused: time.Hour}})
	x := w.waiting(s.ID)
	p, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"cat"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := p.Wait(t.Context())
		told <- err
	}()
	paused := w.pause(s.ID)
	if paused.Status != sandbox.Paused || !paused.Memory || paused.PausedAt.IsZero() || !paused.TerminatesAt.Equal(paused.PausedAt.Add(time.Hour)) {
		t.Errorf("paused %+v", paused)
	}
	if err := <-told; !fault.Is(err, fault.State) || !strings.Contains(err.Error(), "is paused") {
		t.Errorf("the session was told %v", err)
	}
	if again := w.pause(s.ID); !again.PausedAt.Equal(paused.PausedAt) || w.host.Calls(fake.Suspend) != 1 {
		t.Errorf("paused again %+v", again)
	}
	if st, err := w.engine.As(alice).Execution(t.Context(), x.ID, 0); err != nil || st.Status != sandbox.ExecRunning {
		t.Errorf("the command meanwhile: %+v, %v", st, err)
	}
	if ev := w.last(s.ID, sandbox.EventPause); ev.Principal != "alice" || ev.Data["memory"] != true || ev.Data["why"] != "by hand" || ev.Data["durationMs"] == nil {
		t.Errorf("event %+v", ev)
	}
	up := w.resume(s.ID)
	if up.Status != sandbox.Running || up.Memory || !up.PausedAt.IsZero() || !up.TerminatesAt.IsZero() {
		t.Errorf("resumed %+v", up)
	}
	if ev := w.last(s.ID, sandbox.EventResume); ev.Principal != "alice" || ev.Data["memory"] != true || ev.Data["why"] != "by hand" {
		t.Errorf("event %+v", ev)
	}
	if again := w.resume(s.ID); again.Status != sandbox.Running || w.host.Calls(fake.Resume) != 1 {
		t.Errorf("resumed again %+v", again)
	}
	w.wentOn(x)
	w.status(s.ID, sandbox.Idle)
}

func TestPauseWithoutMemory(t *testing.T) {
	w := newWorld(t)
	w.unsupported = map[string]string{driver.FeatureCheckpoint: "not on this machine"}
	w.restart()
	s := w.create(alice, sandbox.CreateRequest{Files: []sandbox.File{{Path: "kept", Content: []byte("yes")}}})
	x := w.waiting(s.ID)
	j, err := w.engine.As(alice).CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if s = w.pause(s.ID); s.Memory {
		t.Errorf("paused %+v", s)
	}
	w.wasLost(x, "the sandbox was paused")
	if j, err = w.engine.As(alice).Job(t.Context(), j.ID, time.Minute); err != nil || j.Status != sandbox.JobFailed || !strings.Contains(j.Error, "the sandbox was paused") {
		t.Errorf("the job ended %+v, %v", j, err)
	}
	if ev := w.last(s.ID, sandbox.EventPause); ev.Data["memory"] != false || ev.Data["reason"] != "not on this machine" {
		t.Errorf("event %+v", ev)
	}
	if s = w.resume(s.ID); s.Status != sandbox.Idle {
		t.Errorf("resumed %+v", s)
	}
	if _, out := w.exec(alice, s.ID, "cat", "kept"); out != "yes" {
		t.Errorf("the file holds %q", out)
	}
}

// A pause that would lose the files is refused.
func TestPauseNeedsDurableFiles(t *testing.T) {
	w := newWorld(t)
	w.unsupported = map[string]string{driver.FeatureCheckpoint: "no", driver.FeatureDurableFiles: "files are in memory here"}
	w.restart()
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	_, err := w.engine.As(alice).Pause(t.Context(), s.ID)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "files are in memory here") {
		t.Fatalf("pause: %v", err)
	}
	w.wentOn(x)
}

// What the image was taken for need not be there any more when it is read.
func TestResumeWithoutItsMemory(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Files: []sandbox.File{{Path: "kept", Content: []byte("yes")}}})
	x := w.waiting(s.ID)
	w.pause(s.ID)
	w.host.SpoilMemory(s.ID, "the CPU is another one")
	if up := w.resume(s.ID); up.Status != sandbox.Idle {
		t.Errorf("resumed %+v", up)
	}
	w.wasLost(x, "the CPU is another one")
	if ev := w.last(s.ID, sandbox.EventResume); ev.Data["memory"] != false || ev.Data["reason"] != "the CPU is another one" {
		t.Errorf("event %+v", ev)
	}
	if _, out := w.exec(alice, s.ID, "cat", "kept"); out != "yes" {
		t.Errorf("the file holds %q", out)
	}
}

// Whatever is done in a paused sandbox resumes it, once for all who come.
func TestUseResumes(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Files: []sandbox.File{{Path: "kept", Content: []byte("yes")}}})
	a := w.engine.As(alice)
	w.pause(s.ID)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}})
	if err != nil || !x.AutoResumed {
		t.Fatalf("execution %+v, %v", x, err)
	}
	if x, err = a.Execution(t.Context(), x.ID, time.Minute); err != nil || !x.AutoResumed {
		t.Fatalf("execution %+v, %v", x, err)
	}
	if ev := w.last(s.ID, sandbox.EventResume); ev.Data["why"] != "it was used" {
		t.Errorf("event %+v", ev)
	}
	if x, _ := w.exec(alice, s.ID, "true"); x.AutoResumed {
		t.Error("nothing was resumed for the next one")
	}
	for name, use := range map[string]func() error{
		"write": func() error { return a.WriteFile(t.Context(), s.ID, sandbox.File{Path: "a"}) },
		"read": func() error {
			r, err := a.ReadFile(t.Context(), s.ID, "kept")
			if err == nil {
				r.Close()
			}
			return err
		},
		"start": func() error {
			p, err := a.Start(t.Context(), s.ID, guest.Command{Args: []string{"true"}}, guest.Output{})
			if err == nil {
				_, err = p.Wait(t.Context())
			}
			return err
		},
		"dial": func() error {
			if _, err := a.Dial(t.Context(), s.ID, "unix", "/nothing/here"); !fault.Is(err, fault.NotFound) {
				return err
			}
			return nil
		},
		"job": func() error {
			_, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"true"}})
			return err
		},
	} {
		w.pause(s.ID)
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.status(s.ID, sandbox.Idle)
	}

	w.pause(s.ID)
	before := w.host.Calls(fake.Resume)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			p, err := a.Start(t.Context(), s.ID, guest.Command{Args: []string{"true"}}, guest.Output{})
			if err == nil {
				_, err = p.Wait(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := w.host.Calls(fake.Resume) - before; n != 1 {
		t.Errorf("it was resumed %d times", n)
	}
}

// A sandbox that does not start stays paused with all it has.
func TestResumeFails(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	w.pause(s.ID)
	w.host.FailNext(fake.Resume, fault.New(fault.Exhausted, "the machine is out of memory"))
	_, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}})
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), s.ID+" is paused and could not be resumed: the machine is out of memory") {
		t.Fatalf("execute: %v", err)
	}
	if got := w.status(s.ID, sandbox.Paused); !got.Memory {
		t.Errorf("left %+v", got)
	}
	w.resume(s.ID)
	w.wentOn(x)
}

// A pause that fails changes nothing.
func TestPauseFails(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	w.host.FailNext(fake.Suspend, fault.New(fault.Exhausted, "the disk is full"))
	_, err := w.engine.As(alice).Pause(t.Context(), s.ID)
	wantCode(t, err, fault.Exhausted)
	w.status(s.ID, sandbox.Running)
	w.wentOn(x)

	// Where memory cannot be kept the files are.
	w.host.FailNext(fake.Suspend, fault.New(fault.Unsupported, "it holds a device"))
	if s = w.pause(s.ID); s.Memory {
		t.Errorf("paused %+v", s)
	}
	if ev := w.last(s.ID, sandbox.EventPause); ev.Data["memory"] != false || ev.Data["reason"] != "it holds a device" {
		t.Errorf("event %+v", ev)
	}
}

// refusing is a store that refuses one change of a sandbox.
type refusing struct {
	sandbox.Store
	mu     sync.Mutex
	refuse sandbox.Status // the move to it
}

var errFull = fault.New(fault.Exhausted, "the disk that holds the state is full")

func (r *refusing) UpdateSandbox(ctx context.Context, id string, change func(*sandbox.Sandbox) ([]sandbox.Event, error)) (sandbox.Sandbox, error) {
	return r.Store.UpdateSandbox(ctx, id, func(s *sandbox.Sandbox) ([]sandbox.Event, error) {
		was := s.Status
		evs, err := change(s)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil && s.Status != was && s.Status == r.refuse {
			r.refuse = ""
			return nil, errFull
		}
		return evs, err
	})
}

// What cannot be recorded is taken back.
func TestPauseThatCannotBeRecorded(t *testing.T) {
	store := &refusing{}
	w := newWorld(t, func(c *sandbox.Config) { store.Store, c.Store = c.Store, store })
	s := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(s.ID)
	store.refuse = sandbox.Paused
	if _, err := w.engine.As(alice).Pause(t.Context(), s.ID); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	w.status(s.ID, sandbox.Running)
	w.pause(s.ID)
	store.refuse = sandbox.Running
	if _, err := w.engine.As(alice).Resume(t.Context(), s.ID); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	w.status(s.ID, sandbox.Paused)
	w.resume(s.ID)
	w.wentOn(x)
}
