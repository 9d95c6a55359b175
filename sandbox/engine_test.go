package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func TestLifeOfASandbox(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Name: "box", Env: map[string]string{"COLOUR": "red"}, Files: []sandbox.File{{Path: "in/a.txt", Content: []byte("hello")}}})
	if s.Status != sandbox.Idle || s.Owner != "alice" || s.Runtime.Name != "tiny:1" {
		t.Fatalf("created %+v", s)
	}
	x, out := w.exec(alice, "box", "sh", "-c", "cat in/a.txt; echo $COLOUR; echo err >&2; exit 3")
	if x.Status != sandbox.ExecFailed || x.ExitCode == nil || *x.ExitCode != 3 || out != "hellored\n" {
		t.Fatalf("execution %+v printed %q", x, out)
	}
	if e := w.output(alice, x.ID, sandbox.Stderr); e != "err\n" {
		t.Fatalf("stderr %q", e)
	}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatalf("delete again: %v", err)
	}
	want := []string{"create", "lifecycle:started", "execution:started", "execution:ended", "destroy"}
	if got := w.events(s.ID); !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	if _, err := w.engine.As(alice).Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"true"}}); !fault.Is(err, fault.State) {
		t.Fatalf("execute in a deleted sandbox: %v", err)
	}
}

// A foreigner cannot tell somebody else's sandbox from one that is not there.
func TestForeignLooksMissing(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Name: "hers"})
	x, _ := w.exec(alice, s.ID, "true")
	other := w.engine.As(bob)
	ops := map[string]func(ref string) error{
		"get":    func(ref string) error { _, err := other.Get(t.Context(), ref); return err },
		"delete": func(ref string) error { return other.Delete(t.Context(), ref) },
		"wait":   func(ref string) error { _, err := other.WaitStatus(t.Context(), ref, sandbox.Idle); return err },
		"start": func(ref string) error {
			_, err := other.Start(t.Context(), ref, guest.Command{Args: []string{"true"}}, guest.Output{})
			return err
		},
		"dial": func(ref string) error {
			_, err := other.Dial(t.Context(), ref, "tcp", "127.0.0.1:1")
			return err
		},
		"write": func(ref string) error { return other.WriteFile(t.Context(), ref, sandbox.File{Path: "x"}) },
		"read":  func(ref string) error { _, err := other.ReadFile(t.Context(), ref, "x"); return err },
		"execute": func(ref string) error {
			_, err := other.Execute(t.Context(), ref, sandbox.ExecRequest{Command: []string{"true"}})
			return err
		},
		"executions": func(ref string) error { _, err := other.Executions(t.Context(), ref, 0); return err },
		"events":     func(ref string) error { _, err := other.Events(t.Context(), ref, 0, 0); return err },
	}
	const missing = "sbx_aaaaaaaaaaaa"
	for name, op := range ops {
		foreign, none := op(s.ID), op(missing)
		wantCode(t, foreign, fault.NotFound)
		if a, b := strings.ReplaceAll(foreign.Error(), s.ID, missing), none.Error(); a != b {
			t.Errorf("%s: foreign says %q, missing says %q", name, a, b)
		}
		wantCode(t, op("hers"), fault.NotFound)
	}
	for name, op := range map[string]func(id string) error{
		"execution": func(id string) error { _, err := other.Execution(t.Context(), id, 0); return err },
		"cancel":    func(id string) error { return other.Cancel(t.Context(), id) },
		"output":    func(id string) error { return other.Output(t.Context(), id, sandbox.Stdout, io.Discard) },
		"stdin":     func(id string) error { return other.WriteStdin(t.Context(), id, strings.NewReader("")) },
	} {
		foreign, none := op(x.ID), op("exec_aaaaaaaaaaaa")
		wantCode(t, foreign, fault.NotFound)
		if a, b := strings.ReplaceAll(foreign.Error(), x.ID, "exec_aaaaaaaaaaaa"), none.Error(); a != b {
			t.Errorf("%s: foreign says %q, missing says %q", name, a, b)
		}
	}
	if list, n, err := other.List(t.Context(), sandbox.ListRequest{}); err != nil || n != 0 || len(list) != 0 {
		t.Errorf("bob lists %v (%d), %v", list, n, err)
	}
	if _, n, err := w.engine.As(admin).List(t.Context(), sandbox.ListRequest{}); err != nil || n != 1 {
		t.Errorf("an admin lists %d, %v", n, err)
	}
	if _, err := w.engine.As(admin).Get(t.Context(), s.ID); err != nil {
		t.Errorf("an admin finds it by id: %v", err)
	}
	// A name is its owner's: it must not capture what an admin types.
	if _, err := w.engine.As(admin).Get(t.Context(), "hers"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an admin finds a member's sandbox by name: %v", err)
	}
}

// A creation that fails at any step leaves nothing but the record of it.
func TestCreateIsTakenBack(t *testing.T) {
	for _, op := range []fake.Op{fake.Create, fake.Start, fake.Dial} {
		t.Run(string(op), func(t *testing.T) {
			w := newWorld(t)
			w.host.FailNext(op, fault.New(fault.Exhausted, "the disk is full"))
			_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Name: "box"})
			wantCode(t, err, fault.Exhausted)
			list, err := fake.New(fake.Config{Host: w.host}).List(t.Context())
			if err != nil || len(list) != 0 {
				t.Fatalf("the driver still has %v (%v)", list, err)
			}
			all, n, err := w.engine.As(alice).List(t.Context(), sandbox.ListRequest{})
			if err != nil || n != 1 || all[0].Status != sandbox.Failed || all[0].StatusReason != "the disk is full" {
				t.Fatalf("records %+v (%v)", all, err)
			}
			w.create(alice, sandbox.CreateRequest{Name: "box"}) // the name is free again
		})
	}
}

func TestCreateIsCalledOff(t *testing.T) {
	w := newWorld(t)
	gate := w.host.Hold(fake.Start)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := w.engine.As(alice).Create(ctx, sandbox.CreateRequest{Name: "box"})
		failed <- err
	}()
	<-gate.Entered()
	cancel()
	if err := <-failed; !fault.Is(err, fault.Cancelled) {
		t.Fatalf("create: %v", err)
	}
	gate.Open()
	if list, _ := fake.New(fake.Config{Host: w.host}).List(t.Context()); len(list) != 0 {
		t.Fatalf("the driver still has %v", list)
	}
}

// Deleting a sandbox that is still being made calls its creation off.
func TestDeleteWhileCreating(t *testing.T) {
	w := newWorld(t)
	gate := w.host.Hold(fake.Start)
	failed := make(chan error, 1)
	go func() {
		_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Name: "box"})
		failed <- err
	}()
	<-gate.Entered()
	if err := w.engine.As(alice).Delete(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	if err := <-failed; err == nil {
		t.Fatal("the creation did not notice")
	}
	if list, _ := fake.New(fake.Config{Host: w.host}).List(t.Context()); len(list) != 0 {
		t.Fatalf("the driver still has %v", list)
	}
}

func TestOneshot(t *testing.T) {
	w := newWorld(t)
	made, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Mode: sandbox.Oneshot, Command: []string{"sh", "-c", "read x; echo got $x; exit 4"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.As(alice).WriteStdin(t.Context(), made.Execution.ID, strings.NewReader("word\n")); err != nil {
		t.Fatal(err)
	}
	s := w.status(made.Sandbox.ID, sandbox.Terminated)
	if s.ExitCode == nil || *s.ExitCode != 4 {
		t.Fatalf("exit code %v", s.ExitCode)
	}
	if out := w.output(alice, made.Execution.ID, sandbox.Stdout); out != "got word\n" {
		t.Fatalf("printed %q", out)
	}
	if list, _ := fake.New(fake.Config{Host: w.host}).List(t.Context()); len(list) != 0 {
		t.Fatalf("the driver still has %v", list)
	}
}

func TestProcessOutlivesItsConnection(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	var out strings.Builder
	p, err := w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Args: []string{"cat"}}, guest.Output{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		exit guest.Exit
		err  error
	}
	done := make(chan end, 1)
	go func() {
		exit, err := p.Wait(t.Context())
		done <- end{exit, err}
	}()
	if _, err := io.WriteString(p, "before\n"); err != nil {
		t.Fatal(err)
	}
	w.host.DropStreams(s.ID)
	if _, err := io.WriteString(p, "after\n"); err != nil {
		t.Fatalf("write after the connection was lost: %v", err)
	}
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	e := <-done
	if e.err != nil || e.exit.Status() != 0 {
		t.Fatalf("exit %+v, %v", e.exit, e.err)
	}
	if !strings.HasSuffix(out.String(), "after\n") || strings.Count(out.String(), "before") > 1 {
		t.Fatalf("output %q", out.String())
	}
}

// kill -9 of the server: what runs goes on, and the next server takes it up.
func TestServerComesAgain(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Name: "box"})
	a := w.engine.As(alice)
	w.exec(alice, s.ID, "mkfifo", "go")
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Command: []string{"sh", "-c", "echo one; read x <go; echo two; exit 5"}})
	if err != nil {
		t.Fatal(err)
	}
	orphan := w.create(bob, sandbox.CreateRequest{})
	if err := w.store.Close(); err != nil { // the record of the orphan is lost with the old store
		t.Fatal(err)
	}
	w.engine.Close()
	found := w.open()
	if found.Adopted != 2 {
		t.Fatalf("reconciliation %+v", found)
	}
	if _, err := w.engine.As(bob).Get(t.Context(), orphan.ID); err != nil {
		t.Fatal(err)
	}
	// It waits for this, so it ran all the time.
	if _, err = w.engine.As(alice).Start(t.Context(), s.ID, guest.Command{Script: "echo >go"}, guest.Output{}); err != nil {
		t.Fatal(err)
	}
	x, err = w.engine.As(alice).Execution(t.Context(), x.ID, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	out := w.output(alice, x.ID, sandbox.Stdout)
	if x.ExitCode == nil || *x.ExitCode != 5 || out != "one\ntwo\n" {
		t.Fatalf("the command ended %+v and printed %q", x, out)
	}
}

func TestReconcileRemovesWhatNoRecordKnows(t *testing.T) {
	w := newWorld(t)
	d := fake.New(fake.Config{Host: w.host})
	if err := d.Create(t.Context(), driver.Spec{ID: "sbx_nobodysbox12", Rootfs: sandbox.Rootfs{Layers: []string{t.TempDir()}}, Guest: driver.Guest{Path: guestProgram(t)}}); err != nil {
		t.Fatal(err)
	}
	s := w.create(alice, sandbox.CreateRequest{})
	w.engine.Close()
	w.host.Kill(s.ID)
	gone := w.restart()
	if gone.Removed != 1 || gone.Suspended != 1 {
		t.Fatalf("reconciliation %+v", gone)
	}
	w.status(s.ID, sandbox.Suspended)
}

func TestBadRequestsChangeNothing(t *testing.T) {
	w := newWorld(t)
	for field, r := range map[string]sandbox.CreateRequest{
		"name":        {Name: "No Name"},
		"snapshot":    {Snapshot: "snp_1", Runtime: "tiny:1"},
		"runtimeId":   {RuntimeID: "srt_tiny", Runtime: "tiny:1"},
		"mode":        {Mode: "sometimes"},
		"command":     {Mode: sandbox.Oneshot},
		"memory":      {Limits: sandbox.Limits{MemoryBytes: 1}},
		"cpu":         {Limits: sandbox.Limits{CPUMillis: -1}},
		"env":         {Env: map[string]string{"A B": "1"}},
		"files":       {Files: []sandbox.File{{Path: "../etc/passwd"}}},
		"project":     {Project: "a/b"},
		"timeout":     {Timeouts: sandbox.Timeouts{Idle: -1}},
		"metadata":    {Metadata: map[string]json.RawMessage{"k": json.RawMessage("{")}},
		"description": {Description: strings.Repeat("x", 2000)},
	} {
		_, err := w.engine.As(alice).Create(t.Context(), r)
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != fault.Invalid || f.Field != field {
			t.Errorf("%s: error %v names field %q", field, err, f.Field)
		}
	}
	_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Runtime: "none:1"})
	wantCode(t, err, fault.NotFound)
	_, err = w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Snapshot: "snp_1"})
	wantCode(t, err, fault.NotFound)
	if n := w.host.Calls(fake.Create); n != 0 {
		t.Errorf("the driver was called %d times", n)
	}
	if _, n, _ := w.engine.As(admin).List(t.Context(), sandbox.ListRequest{}); n != 0 {
		t.Errorf("%d records were made", n)
	}
	w.create(alice, sandbox.CreateRequest{Name: "twice"})
	_, err = w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Name: "twice"})
	wantCode(t, err, fault.Exists)
	w.create(bob, sandbox.CreateRequest{Name: "twice"}) // names are per owner
}

func TestMembersHaveAQuota(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.MaxPerMember = 1 })
	w.create(alice, sandbox.CreateRequest{})
	_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{})
	wantCode(t, err, fault.Exhausted)
	w.create(bob, sandbox.CreateRequest{})
	w.create(admin, sandbox.CreateRequest{})
	w.create(admin, sandbox.CreateRequest{})
}

// Deleting a sandbox deletes what its commands have printed.
func TestDeleteForgetsOutput(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	x, out := w.exec(alice, s.ID, "echo", "a secret")
	if out != "a secret\n" {
		t.Fatalf("printed %q", out)
	}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "executions")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if out := w.output(alice, x.ID, sandbox.Stdout); out != "" {
		t.Errorf("still prints %q", out)
	}
}
