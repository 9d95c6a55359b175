package sandbox_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/store"
)

// crash ends the server; what meanwhile does happens before the next one.
func (w *world) crash(meanwhile func(d *fake.Driver)) sandbox.Reconciliation {
	w.t.Helper()
	w.close()
	meanwhile(fake.New(fake.Config{Host: w.host}))
	return w.open()
}

// reopened is the store between two servers.
func (w *world) reopened() *store.Store {
	w.t.Helper()
	st, err := store.Open(w.t.Context(), store.Config{Path: filepath.Join(w.dir, "state.db")})
	must(w.t, err)
	return st
}

// A server may end at any point of a pause and of a resume. The next one finds
// what came of it, and no command is lost that still runs.
func TestCrashInPauseAndResume(t *testing.T) {
	for name, tt := range map[string]struct {
		paused bool // before the crash
		then   func(t *testing.T, w *world, id string) func(*fake.Driver)
		want   sandbox.Status
		memory bool
		lost   string // why the command is, when it is
		event  sandbox.EventType
	}{
		"before anything": {then: nothing, want: sandbox.Running},
		"paused, not recorded": {
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(d *fake.Driver) { must(t, d.Suspend(t.Context(), id)) }
			},
			want: sandbox.Paused, memory: true, event: sandbox.EventPause,
		},
		"stopped, not recorded": {
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(d *fake.Driver) { must(t, d.Stop(t.Context(), id, 0)) }
			},
			want: sandbox.Suspended, lost: "the sandbox stopped", event: sandbox.EventLifecycleSuspended,
		},
		"paused": {paused: true, then: nothing, want: sandbox.Paused, memory: true, event: sandbox.EventPause},
		"resumed, not recorded": {
			paused: true,
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(d *fake.Driver) {
					_, err := d.Resume(t.Context(), id)
					must(t, err)
				}
			},
			want: sandbox.Running, event: sandbox.EventResume,
		},
		"resumed and died": {
			paused: true,
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(d *fake.Driver) {
					_, err := d.Resume(t.Context(), id)
					must(t, err)
					w.host.Kill(id)
				}
			},
			want: sandbox.Paused, lost: "the sandbox was paused", event: sandbox.EventPause,
		},
		"resumed without memory, not recorded": {
			paused: true,
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(d *fake.Driver) { must(t, d.Start(t.Context(), id)) }
			},
			want: sandbox.Idle, lost: "lost when the server stopped", event: sandbox.EventResume,
		},
		"broken": {
			paused: true,
			then: func(t *testing.T, w *world, id string) func(*fake.Driver) {
				return func(*fake.Driver) { w.host.Break(id) }
			},
			want: sandbox.Failed, lost: "the sandbox was deleted", event: sandbox.EventLifecycleFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.create(alice, sandbox.CreateRequest{})
			x := w.waiting(s.ID)
			if tt.paused {
				w.pause(s.ID)
			}
			w.crash(tt.then(t, w, s.ID))
			if tt.lost != "" {
				x, err := w.engine.As(alice).Execution(t.Context(), x.ID, time.Minute)
				if err != nil || !x.Status.Done() || !strings.Contains(x.Error, tt.lost) {
					t.Errorf("the command ended %+v, %v; want %q", x, err, tt.lost)
				}
			}
			s = w.status(s.ID, tt.want)
			if s.Memory != tt.memory || tt.want == sandbox.Paused && s.PausedAt.IsZero() || tt.want != sandbox.Paused && !s.PausedAt.IsZero() {
				t.Errorf("found %+v", s)
			}
			if evs := w.events(s.ID); tt.event != "" && !slices.Contains(evs, string(tt.event)) {
				t.Errorf("events %v have no %s", evs, tt.event)
			}
			if tt.want == sandbox.Failed {
				return
			}
			if tt.lost == "" {
				w.wentOn(x) // resumes it
			}
			if x, _ := w.exec(alice, s.ID, "true"); x.Status != sandbox.ExecCompleted {
				t.Errorf("afterwards it runs %+v", x)
			}
		})
	}
}

func nothing(*testing.T, *world, string) func(*fake.Driver) { return func(*fake.Driver) {} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The end of the paused timeout is a date, whoever is the server then.
func TestPausedTimeout(t *testing.T) {
	w := newWorld(t)
	ends := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Paused: time.Hour, Idle: time.Minute}})
	stays := w.create(alice, sandbox.CreateRequest{})
	x := w.waiting(ends.ID)
	for _, s := range []sandbox.Sandbox{ends, stays} {
		w.pause(s.ID)
	}
	a := w.engine.As(alice)
	if at, why, err := a.Countdown(t.Context(), ends.ID); err != nil || why != "paused for 1h" || at.Sub(w.now.Now()) < 59*time.Minute {
		t.Errorf("countdown %s, %q, %v", at, why, err)
	}
	if at, _, err := a.Countdown(t.Context(), stays.ID); err != nil || !at.IsZero() {
		t.Errorf("countdown without a timeout %s, %v", at, err)
	}
	w.reapAfter(50 * time.Minute) // idle means nothing while it is paused
	w.restart()
	w.reapAfter(time.Minute)
	w.status(ends.ID, sandbox.Paused)
	w.reapAfter(10 * time.Minute)
	if s := w.status(ends.ID, sandbox.Terminated); s.StatusReason != "paused for 1h" {
		t.Errorf("reason %q", s.StatusReason)
	}
	if x, err := w.engine.As(alice).Execution(t.Context(), x.ID, time.Minute); err != nil || x.Status != sandbox.ExecCancelled {
		t.Errorf("its command %+v, %v", x, err)
	}
	w.reapAfter(10000 * time.Hour)
	w.status(stays.ID, sandbox.Paused)
}

// What sleeps in a paused sandbox can be told to end, and goes with it.
func TestCancelAndDeleteOfPaused(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x := w.waiting(s.ID)
	w.pause(s.ID)
	must(t, a.Cancel(t.Context(), x.ID))
	if x, err := a.Execution(t.Context(), x.ID, 0); err != nil || x.Status != sandbox.ExecCancelled {
		t.Errorf("cancelled %+v, %v", x, err)
	}
	w.status(s.ID, sandbox.Idle)
	j, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"sleep", "1000"}})
	must(t, err)
	w.pause(s.ID)
	must(t, a.Delete(t.Context(), s.ID))
	if j, err = a.Job(t.Context(), j.ID, time.Minute); err != nil || j.Status != sandbox.JobCancelled {
		t.Errorf("the job ended %+v, %v", j, err)
	}
	if list, err := fake.New(fake.Config{Host: w.host}).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the driver still has %v, %v", list, err)
	}
}

// A run is over with its server's end, wherever that was.
func TestCrashInRun(t *testing.T) {
	run := sandbox.CreateRequest{Mode: sandbox.Oneshot, Command: []string{"cat"}, Stdin: true}
	t.Run("under way", func(t *testing.T) {
		w := newWorld(t)
		made, err := w.engine.As(alice).Create(t.Context(), run)
		must(t, err)
		_, err = w.engine.As(alice).Pause(t.Context(), made.Sandbox.ID)
		wantCode(t, err, fault.State)
		w.restart()
		w.status(made.Sandbox.ID, sandbox.Running)
		must(t, w.engine.As(alice).WriteStdin(t.Context(), made.Execution.ID, strings.NewReader("")))
		w.status(made.Sandbox.ID, sandbox.Terminated)
	})
	t.Run("over, not removed", func(t *testing.T) {
		w := newWorld(t)
		made, err := w.engine.As(alice).Create(t.Context(), run)
		must(t, err)
		w.crash(func(*fake.Driver) {
			st := w.reopened()
			defer st.Close()
			_, err := st.UpdateExecution(t.Context(), made.Execution.ID, func(x *sandbox.Execution) ([]sandbox.Event, error) {
				code := 3
				x.Status, x.ExitCode = sandbox.ExecFailed, &code
				return nil, nil
			})
			must(t, err)
		})
		if s := w.status(made.Sandbox.ID, sandbox.Terminated); s.ExitCode == nil || *s.ExitCode != 3 {
			t.Errorf("ended %+v", s)
		}
	})
	t.Run("never begun", func(t *testing.T) {
		w := newWorld(t)
		s := w.create(alice, sandbox.CreateRequest{})
		w.crash(func(*fake.Driver) {
			st := w.reopened()
			defer st.Close()
			_, err := st.UpdateSandbox(t.Context(), s.ID, func(s *sandbox.Sandbox) ([]sandbox.Event, error) {
				s.Mode = sandbox.Oneshot
				return nil, nil
			})
			must(t, err)
		})
		w.status(s.ID, sandbox.Failed)
		if list, err := fake.New(fake.Config{Host: w.host}).List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the driver still has %v, %v", list, err)
		}
	})
}
