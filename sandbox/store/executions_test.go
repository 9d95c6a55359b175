package store

import (
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestExecutionMovesSandbox(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	create(t, s, newSandbox("sbx_1"))
	get := func() sandbox.Sandbox {
		t.Helper()
		sb, err := s.Sandbox(ctx, "sbx_1")
		must(t, err)
		return sb
	}
	start := func(id string) {
		t.Helper()
		must(t, s.CreateExecution(ctx, sandbox.Execution{ID: id, SandboxID: "sbx_1", Status: sandbox.ExecRunning, CreatedAt: epoch},
			sandbox.Event{Type: sandbox.EventExecStarted, Data: map[string]any{"id": id}}))
	}
	end := func(id string, st sandbox.ExecutionStatus) {
		t.Helper()
		_, err := s.UpdateExecution(ctx, id, func(x *sandbox.Execution) ([]sandbox.Event, error) {
			x.Status = st
			return []sandbox.Event{{Type: sandbox.EventExecEnded, Data: map[string]any{"id": id}}}, nil
		})
		must(t, err)
	}
	want := func(st sandbox.Status, executions int) {
		t.Helper()
		if sb := get(); sb.Status != st || sb.Executions != executions {
			t.Fatalf("the sandbox is %s after %d executions, want %s after %d", sb.Status, sb.Executions, st, executions)
		}
	}

	start("exec_1")
	want(sandbox.Running, 1)
	if sb := get(); !sb.ActiveAt.IsZero() || !sb.UpdatedAt.After(epoch) {
		t.Errorf("active %v, updated %v", sb.ActiveAt, sb.UpdatedAt)
	}
	start("exec_2")
	want(sandbox.Running, 2)
	end("exec_1", sandbox.ExecCompleted)
	want(sandbox.Running, 2) // the other goes on
	end("exec_2", sandbox.ExecQueued)
	want(sandbox.Running, 2)
	open, err := s.OpenExecutions(ctx)
	must(t, err)
	if len(open) != 1 || open[0].ID != "exec_2" {
		t.Errorf("open: %+v", open)
	}
	end("exec_2", sandbox.ExecTimeout)
	want(sandbox.Idle, 2)
	idle := get()
	if idle.ActiveAt.IsZero() || !idle.ActiveAt.Equal(idle.UpdatedAt) {
		t.Errorf("active %v, updated %v", idle.ActiveAt, idle.UpdatedAt)
	}

	// What is said of an execution that has ended moves nothing any more.
	start("exec_3")
	end("exec_2", sandbox.ExecFailed)
	want(sandbox.Running, 3)

	// A sandbox that is neither idle nor running keeps its status.
	_, err = s.UpdateSandbox(ctx, "sbx_1", func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
		sb.Status = sandbox.Stopping
		return nil, nil
	})
	must(t, err)
	end("exec_3", sandbox.ExecCancelled)
	want(sandbox.Stopping, 3)
	start("exec_4")
	want(sandbox.Stopping, 4)

	if events := checkEvents(t, s, "sbx_1"); len(events) != 1+4+5 {
		t.Errorf("%d events", len(events))
	}
}

func TestExecutionLists(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	create(t, s, newSandbox("sbx_1"), newSandbox("sbx_2"))
	for i, id := range []string{"z", "a", "m"} { // the last two at the same instant
		must(t, s.CreateExecution(ctx, sandbox.Execution{ID: id, SandboxID: "sbx_1", Status: sandbox.ExecQueued, CreatedAt: epoch.Add(time.Duration(min(i, 1)))}))
	}
	must(t, s.CreateExecution(ctx, sandbox.Execution{ID: "other", SandboxID: "sbx_2", Status: sandbox.ExecCompleted, CreatedAt: epoch}))
	list := func(xs []sandbox.Execution, err error) string {
		t.Helper()
		must(t, err)
		s := ""
		for _, x := range xs {
			s += x.ID + " "
		}
		return s
	}
	same(t, "newest first", list(s.Executions(ctx, "sbx_1", 0)), "m a z ")
	same(t, "limit", list(s.Executions(ctx, "sbx_1", 2)), "m a ")
	same(t, "of nothing", list(s.Executions(ctx, "sbx_gone", 0)), "")
	same(t, "open, oldest first", list(s.OpenExecutions(ctx)), "z a m ")

	_, err := s.Executions(ctx, "sbx_1", -1)
	wantCode(t, err, fault.Invalid)
	_, err = s.Execution(ctx, "gone")
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.CreateExecution(ctx, sandbox.Execution{ID: "x", SandboxID: "sbx_gone"}), fault.NotFound)
	wantCode(t, s.CreateExecution(ctx, sandbox.Execution{ID: "z", SandboxID: "sbx_1"}), fault.Exists)
	sb, err := s.Sandbox(ctx, "sbx_1")
	if must(t, err); sb.Executions != 3 {
		t.Errorf("a failed creation was counted: %d", sb.Executions)
	}
}
