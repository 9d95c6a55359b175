package store

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestJobs(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	create(t, s, newSandbox("sbx_1"), newSandbox("sbx_2"))
	for i := range 5 {
		must(t, s.CreateJob(ctx, sandbox.Job{
			ID: fmt.Sprint("job_", i), SandboxID: "sbx_1", Status: sandbox.JobPending, Command: []string{"sleep", fmt.Sprint(i)},
			CreatedAt: epoch.Add(time.Duration(i) * time.Second),
		}))
	}
	must(t, s.CreateJob(ctx, sandbox.Job{ID: "job_other", SandboxID: "sbx_2", Status: sandbox.JobRunning, CreatedAt: epoch}))
	wantCode(t, s.CreateJob(ctx, sandbox.Job{ID: "job_1", SandboxID: "sbx_1"}), fault.Exists)
	wantCode(t, s.CreateJob(ctx, sandbox.Job{ID: "job_x", SandboxID: "sbx_none"}), fault.NotFound)

	page, total, err := s.Jobs(ctx, "sbx_1", 2, 1)
	must(t, err)
	if total != 5 || len(page) != 2 || page[0].ID != "job_3" || page[1].ID != "job_2" {
		t.Errorf("page of %d: %+v", total, page)
	}
	code := 3
	want := sandbox.Job{
		ID: "job_1", SandboxID: "sbx_1", Status: sandbox.JobFailed, Command: []string{"sleep", "1"}, ExitCode: &code, Error: "e",
		StdoutBytes: 4, StderrBytes: 5, OutputTruncated: true,
		CreatedAt: epoch.Add(time.Second), StartedAt: epoch.Add(2 * time.Second), EndedAt: epoch.Add(3 * time.Second),
	}
	_, err = s.UpdateJob(ctx, "job_1", func(j *sandbox.Job) ([]sandbox.Event, error) {
		*j = want
		return []sandbox.Event{{Type: sandbox.EventJobEnded}}, nil
	})
	must(t, err)
	got, err := s.Job(ctx, "job_1")
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if events := checkEvents(t, s, "sbx_1"); len(events) != 2 || events[1].Type != sandbox.EventJobEnded {
		t.Errorf("events %+v", events)
	}
	if sb, err := s.Sandbox(ctx, "sbx_1"); err != nil || sb.ActiveAt.IsZero() || sb.Status != sandbox.Idle {
		t.Errorf("its sandbox: %+v, %v", sb, err)
	}
	for sandboxID, want := range map[string]int{"": 5, "sbx_1": 4, "sbx_2": 1, "sbx_none": 0} {
		if open, err := s.OpenJobs(ctx, sandboxID); err != nil || len(open) != want {
			t.Errorf("open in %q: %d, %v; want %d", sandboxID, len(open), err, want)
		}
	}
	// What a change refuses is not written.
	refused := fault.New(fault.State, "no")
	if _, err := s.UpdateJob(ctx, "job_2", func(j *sandbox.Job) ([]sandbox.Event, error) { j.Error = "x"; return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	if j, err := s.Job(ctx, "job_2"); err != nil || j.Error != "" {
		t.Errorf("after a refusal: %+v, %v", j, err)
	}
	_, err = s.Job(ctx, "job_none")
	wantCode(t, err, fault.NotFound)
}

func TestExecutionHistory(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	for i := range 7 { // all at one instant
		must(t, s.CreateExecution(t.Context(), sandbox.Execution{ID: fmt.Sprint("exec_", i), SandboxID: "sbx_1", Status: sandbox.ExecCompleted, CreatedAt: epoch}))
	}
	var got []string
	for offset := 0; offset < 7; offset += 3 {
		page, total, err := s.ExecutionHistory(t.Context(), "sbx_1", 3, offset)
		if must(t, err); total != 7 {
			t.Errorf("total %d", total)
		}
		for _, x := range page {
			got = append(got, x.ID)
		}
	}
	if want := "[exec_6 exec_5 exec_4 exec_3 exec_2 exec_1 exec_0]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	_, _, err := s.ExecutionHistory(t.Context(), "sbx_1", 1, -1)
	wantCode(t, err, fault.Invalid)
}
