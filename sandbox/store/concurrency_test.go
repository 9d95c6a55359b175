package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// TestConcurrentChanges lets many change one sandbox and some others while
// readers look on: no change is lost, and no reader sees half of one.
func TestConcurrentChanges(t *testing.T) {
	s := openStore(t)
	const writers, each = 8, 20
	create(t, s, newSandbox("sbx_shared"))
	var work, watch sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		watch.Go(func() {
			for {
				sb, err := s.Sandbox(context.Background(), "sbx_shared")
				if err != nil || sb.Limits.CPUMillis != sb.Limits.MemoryBytes {
					t.Errorf("read %+v, %v", sb.Limits, err)
					return
				}
				events, err := s.Events(context.Background(), "sbx_shared", 0, 0)
				if err != nil || len(events) < int(sb.Limits.CPUMillis)+1 || events[len(events)-1].Seq != int64(len(events)) {
					t.Errorf("%d events after %d changes, %v", len(events), sb.Limits.CPUMillis, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		work.Go(func() {
			id := fmt.Sprint("sbx_", w)
			if err := s.CreateSandbox(context.Background(), newSandbox(id), sandbox.Event{Type: sandbox.EventCreate}); err != nil {
				t.Error(err)
			}
			for range each {
				for _, id := range []string{id, "sbx_shared"} {
					_, err := s.UpdateSandbox(context.Background(), id, func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
						sb.Limits.CPUMillis++
						sb.Limits.MemoryBytes++
						return []sandbox.Event{{Type: sandbox.EventExecStarted}}, nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	work.Wait()
	close(done)
	watch.Wait()
	sb, err := s.Sandbox(t.Context(), "sbx_shared")
	must(t, err)
	if want := int64(writers * each); sb.Limits.CPUMillis != want || len(checkEvents(t, s, "sbx_shared")) != int(want)+1 {
		t.Errorf("%d changes, want %d", sb.Limits.CPUMillis, want)
	}
	for w := range writers {
		if n := len(checkEvents(t, s, fmt.Sprint("sbx_", w))); n != each+1 {
			t.Errorf("sandbox %d has %d events", w, n)
		}
	}
}

// TestOneNameOneWinner lets many create a sandbox of the same name.
func TestOneNameOneWinner(t *testing.T) {
	s := openStore(t)
	errs := make([]error, 10)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			sb := newSandbox(fmt.Sprint("sbx_", i))
			sb.Name = "web"
			errs[i] = s.CreateSandbox(context.Background(), sb, sandbox.Event{Type: sandbox.EventCreate})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantCode(t, err, fault.Exists)
	}
	_, total, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{Name: "web"})
	if must(t, err); won != 1 || total != 1 {
		t.Errorf("%d won, %d are there", won, total)
	}
}

// TestCancelWhileWaiting gives up while another change is under way: the one
// that gave up is never made, the other is, and the store goes on.
func TestCancelWhileWaiting(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.UpdateSandbox(t.Context(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
		waiting := make(chan error)
		go func() {
			_, err := s.UpdateSandbox(ctx, "sbx_1", func(*sandbox.Sandbox) ([]sandbox.Event, error) {
				t.Error("the change that was given up is made")
				return nil, nil
			})
			waiting <- err
		}()
		cancel()
		wantCode(t, <-waiting, fault.Cancelled)
		sb.Description = "first"
		return nil, nil
	})
	must(t, err)
	sb, err := s.Sandbox(t.Context(), "sbx_1")
	if must(t, err); sb.Description != "first" {
		t.Errorf("description %q", sb.Description)
	}
}

// TestCancelInside gives up in the middle of the transaction.
func TestCancelInside(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.UpdateSandbox(ctx, "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
			sb.Description = "given up"
			cancel()
			return []sandbox.Event{{Type: sandbox.EventDestroy}}, nil
		})
		wantCode(t, err, fault.Cancelled)
	}
	sb, err := s.Sandbox(t.Context(), "sbx_1")
	if must(t, err); sb.Description != "" || len(checkEvents(t, s, "sbx_1")) != 1 {
		t.Errorf("written although given up: %+v", sb)
	}
	create(t, s, newSandbox("sbx_2")) // the store goes on
}

func TestContextEndedBefore(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for ctx, code := range map[context.Context]fault.Code{cancelled: fault.Cancelled, late: fault.Timeout} {
		wantCode(t, s.CreateSandbox(ctx, newSandbox("sbx_2"), sandbox.Event{}), code)
		_, err := s.Sandbox(ctx, "sbx_1")
		wantCode(t, err, code)
		_, _, err = s.Sandboxes(ctx, sandbox.SandboxFilter{})
		wantCode(t, err, code)
		_, err = s.Events(ctx, "sbx_1", 0, 0)
		wantCode(t, err, code)
	}
}

func TestChangeRefuses(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	must(t, s.CreateExecution(t.Context(), sandbox.Execution{ID: "exec_1", SandboxID: "sbx_1", Status: sandbox.ExecRunning}))
	before, err := s.Sandbox(t.Context(), "sbx_1")
	must(t, err)

	for _, refusal := range []error{errors.New("no"), context.Canceled, fault.New(fault.State, "no")} {
		got, err := s.UpdateSandbox(t.Context(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
			sb.Status = sandbox.Failed
			return []sandbox.Event{{Type: sandbox.EventDestroy}}, refusal
		})
		if err != refusal || got.ID != "" { //nolint:errorlint // the very same error is promised
			t.Errorf("got %v, %v, want %v", got, err, refusal)
		}
		x, err := s.UpdateExecution(t.Context(), "exec_1", func(x *sandbox.Execution) ([]sandbox.Event, error) {
			x.Status = sandbox.ExecFailed
			return []sandbox.Event{{Type: sandbox.EventExecEnded}}, refusal
		})
		if err != refusal || x.ID != "" { //nolint:errorlint // the very same error is promised
			t.Errorf("got %v, %v, want %v", x, err, refusal)
		}
	}
	after, err := s.Sandbox(t.Context(), "sbx_1")
	must(t, err)
	same(t, "sandbox", after, before)
	if len(checkEvents(t, s, "sbx_1")) != 1 {
		t.Error("events of a refused change are there")
	}

	calls := 0
	_, err = s.UpdateSandbox(t.Context(), "sbx_gone", func(*sandbox.Sandbox) ([]sandbox.Event, error) { calls++; return nil, nil })
	wantCode(t, err, fault.NotFound)
	_, err = s.UpdateExecution(t.Context(), "exec_gone", func(*sandbox.Execution) ([]sandbox.Event, error) { calls++; return nil, nil })
	wantCode(t, err, fault.NotFound)
	_, err = s.UpdateSandbox(t.Context(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) { calls++; sb.ID = "sbx_2"; return nil, nil })
	wantCode(t, err, fault.Internal)
	_, err = s.UpdateExecution(t.Context(), "exec_1", func(x *sandbox.Execution) ([]sandbox.Event, error) { calls++; x.SandboxID = "sbx_2"; return nil, nil })
	wantCode(t, err, fault.Internal)
	if calls != 2 {
		t.Errorf("change was called %d times", calls)
	}
}

// TestChangePanics lets a change panic: the panic passes, nothing is written,
// and the next writer gets its turn.
func TestChangePanics(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	func() {
		defer func() {
			if recover() != "defect" {
				t.Error("the panic did not pass")
			}
		}()
		_, _ = s.UpdateSandbox(t.Context(), "sbx_1", func(*sandbox.Sandbox) ([]sandbox.Event, error) { panic("defect") })
	}()
	create(t, s, newSandbox("sbx_2"))
}

// TestTwoStores lets two stores, as two processes would, write to one file.
func TestTwoStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	a, b := openAt(t, path), openAt(t, path)
	create(t, a, newSandbox("sbx_1"))
	var wg sync.WaitGroup
	for _, s := range []*Store{a, b} {
		wg.Go(func() {
			for range 20 {
				_, err := s.UpdateSandbox(context.Background(), "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
					sb.Executions++
					return []sandbox.Event{{ID: sandbox.NewID("evt"), Type: sandbox.EventExecStarted}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sb, err := b.Sandbox(t.Context(), "sbx_1")
	if must(t, err); sb.Executions != 40 || len(checkEvents(t, a, "sbx_1")) != 41 {
		t.Errorf("%d changes of 40", sb.Executions)
	}
}
