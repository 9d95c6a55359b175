package sandbox_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// operations are all methods of Operations, those that end things last.
func operations() []reflect.Method {
	var all []reflect.Method
	for m := range reflect.TypeFor[sandbox.Operations]().Methods() {
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b reflect.Method) int {
		last := func(m reflect.Method) int {
			return slices.Index([]string{"DeleteSnapshot", "Pause", "Delete"}, m.Name)
		}
		return last(a) - last(b)
	})
	return all
}

// Every operation has its verbs; one that is added without is found here, and
// works for nobody.
func TestEveryOperationHasVerbs(t *testing.T) {
	for _, m := range operations() {
		verbs, ok := sandbox.Needs(m.Name)
		if !ok {
			t.Errorf("%s is not in the table of verbs", m.Name)
		}
		for _, v := range verbs {
			if !slices.Contains(keys.Verbs(), v) {
				t.Errorf("%s needs %q, which is no verb", m.Name, v)
			}
		}
	}
}

// called are the arguments that make an operation get as far as its verb.
type called struct {
	t    *testing.T
	id   string            // the sandbox
	refs map[string]string // what the first string means, where that is no sandbox
}

// call calls an operation with arguments of its types and returns its error.
func (c *called) call(a *sandbox.Actor, m reflect.Method) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	in := []reflect.Value{}
	first := true
	for p := range m.Type.Ins() {
		v := c.value(ctx, p)
		if p == reflect.TypeFor[string]() && first {
			first = false
			v = reflect.ValueOf(c.id)
			if ref, ok := c.refs[m.Name]; ok {
				v = reflect.ValueOf(ref)
			}
		}
		in = append(in, v)
	}
	method := reflect.ValueOf(a).MethodByName(m.Name)
	call := method.Call
	if m.Type.IsVariadic() {
		call = method.CallSlice
	}
	out := call(in)
	for _, v := range out { // what was opened is closed
		if closer, ok := reflect.TypeAssert[interface{ Close() error }](v); ok && !v.IsNil() {
			_ = closer.Close()
		}
		if sub, ok := reflect.TypeAssert[*sandbox.Subscription](v); ok && sub != nil {
			sub.Close()
		}
	}
	err, _ := reflect.TypeAssert[error](out[len(out)-1])
	return err
}

func (c *called) value(ctx context.Context, p reflect.Type) reflect.Value {
	for _, v := range []any{
		sandbox.ExecRequest{Command: []string{"true"}}, sandbox.JobRequest{Command: []string{"true"}},
		sandbox.File{Path: "a"}, []sandbox.Status{sandbox.Idle, sandbox.Running, sandbox.Paused}, []sandbox.File{{Path: "a"}}, sandbox.Point{Sandbox: c.id}, sandbox.SnapshotRequest{Tag: sandbox.NoTag},
		sandbox.Stdout, sandbox.ProjectGroup, guest.Command{Script: "true"}, guest.TarGz, sandbox.AsciicastV2,
		sandbox.SessionRequest{Name: "main", Command: guest.Command{TTY: &guest.TTY{Size: guest.Size{Rows: 24, Cols: 80}}}},
		guest.ListenRequest{Network: "tcp", Address: "127.0.0.1:0"},
	} {
		if reflect.TypeOf(v) == p {
			return reflect.ValueOf(v)
		}
	}
	switch p {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(ctx)
	case reflect.TypeFor[io.Reader]():
		return reflect.ValueOf(strings.NewReader(""))
	case reflect.TypeFor[io.Writer]():
		return reflect.ValueOf(io.Discard)
	case reflect.TypeFor[string]():
		return reflect.ValueOf("x")
	}
	if p.Kind() == reflect.Func {
		return reflect.MakeFunc(p, func([]reflect.Value) []reflect.Value {
			out := make([]reflect.Value, p.NumOut())
			for i := range out {
				out[i] = reflect.Zero(p.Out(i))
			}
			return out
		})
	}
	return reflect.Zero(p)
}

// scopeWorld is a world with one sandbox of an admin, and what is in it.
func scopeWorld(t *testing.T) (*world, *called) {
	t.Helper()
	w := newWorld(t)
	s := w.create(admin, sandbox.CreateRequest{Name: "dev"})
	a := w.engine.As(admin)
	x, _ := w.exec(admin, s.ID, "true")
	j, err := a.CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if j, err = a.Job(t.Context(), j.ID, time.Minute); err != nil || !j.Status.Done() {
		t.Fatal(j, err)
	}
	p, err := a.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	c := &called{t: t, id: s.ID, refs: map[string]string{}}
	for _, name := range []string{"Execution", "Cancel", "Output", "WriteStdin", "ExecutionOutput"} {
		c.refs[name] = x.ID
	}
	for _, name := range []string{"Job", "StopJob", "JobOutput"} {
		c.refs[name] = j.ID
	}
	for _, name := range []string{"Snapshot", "TagSnapshot", "DeleteSnapshot", "Lineage", "SnapshotFiles", "SandboxesOf", "ExportSnapshot"} {
		c.refs[name] = p.ID
	}
	rec := sandbox.Recording{ID: "rec_aaaabbbbcccc", SandboxID: s.ID, SessionID: "ses_aaaabbbbcccc", CreatedAt: w.now.Now()}
	if err := w.store.CreateRecording(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Recording", "ReadRecording", "DeleteRecording"} {
		c.refs[name] = rec.ID
	}
	c.refs["Stats"] = ""
	return w, c
}

// A key that lacks the verb is told so by name, and one that has no other is
// let through.
func TestVerbs(t *testing.T) {
	w, c := scopeWorld(t)
	who := admin
	who.KeyID = "SHA256:scoped"
	all := operations()
	for _, m := range all {
		verbs, _ := sandbox.Needs(m.Name)
		if len(verbs) == 0 {
			continue
		}
		who.Scope.Verbs = slices.DeleteFunc(keys.Verbs(), func(v keys.Verb) bool { return slices.Contains(verbs, v) })
		err := c.call(w.engine.As(who), m)
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the verb "`+string(verbs[0])+`"`) && m.Name != "Start" || !strings.Contains(err.Error(), who.KeyID) {
			t.Errorf("%s without %q: %v", m.Name, verbs, err)
		}
	}
	for _, m := range all {
		verbs, _ := sandbox.Needs(m.Name)
		if m.Name == "Principal" || m.Name == "ReloadServer" {
			continue
		}
		if m.Name == "Start" {
			verbs = []keys.Verb{keys.Exec}
		}
		who.Scope.Verbs = verbs[:min(1, len(verbs))]
		if err := c.call(w.engine.As(who), m); fault.Is(err, fault.Denied) || fault.Is(err, fault.Internal) {
			t.Errorf("%s with %q: %v", m.Name, verbs, err)
		}
	}
}

// What Start needs depends on what is started.
func TestVerbsOfStart(t *testing.T) {
	w, c := scopeWorld(t)
	for _, s := range []struct {
		cmd  guest.Command
		verb keys.Verb
	}{
		{guest.Command{}, keys.Shell},
		{guest.Command{TTY: &guest.TTY{}}, keys.Shell},
		{guest.Command{Script: "true"}, keys.Exec},
		{guest.Command{Script: "true", TTY: &guest.TTY{}}, keys.Exec},
		{guest.Command{Args: []string{"true"}}, keys.Exec},
		{guest.Command{Builtin: guest.BuiltinSFTP}, keys.Files},
	} {
		for _, v := range keys.Verbs() {
			who := admin
			who.Scope.Verbs = []keys.Verb{v}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			p, err := w.engine.As(who).Start(ctx, c.id, s.cmd, guest.Output{Stdout: io.Discard, Stderr: io.Discard})
			if fault.Is(err, fault.Denied) != (v != s.verb) {
				t.Errorf("%+v with %s: %v", s.cmd, v, err)
			}
			if err == nil {
				_ = p.Hangup(ctx)
				_, _ = p.Wait(ctx)
				_ = p.Close()
			}
			cancel()
		}
	}
}

// Outside of its fence there is nothing for a key: the answers are those for
// what never was, to the letter.
func TestFence(t *testing.T) {
	w, c := scopeWorld(t)
	other := w.create(admin, sandbox.CreateRequest{Name: "other"})
	who := admin
	who.Scope.Sandboxes = []string{other.ID}
	missing := &called{t: t, id: "sbx_aaaaaaaaaaaa", refs: map[string]string{"Stats": ""}}
	for name, id := range c.refs {
		if prefix, _, ok := strings.Cut(id, "_"); ok {
			missing.refs[name] = prefix + "_aaaaaaaaaaaa"
		}
	}
	// These are about no sandbox that is.
	global := []string{
		"Principal", "Runtimes", "List", "Snapshots", "Projects", "Create", "ImportSnapshot", "Stats", "AddKey", "ListKeys", "DeleteKey",
		"AddAPIKey", "ListAPIKeys", "DeleteAPIKey", "CreateInvite", "Invites", "RevokeInvite", "CreateProject", "DeleteProject",
		"AddMember", "RemoveMember", "Audit", "ReloadServer", "Recording", "ReadRecording", "DeleteRecording",
	}
	for _, m := range operations() {
		if slices.Contains(global, m.Name) {
			continue
		}
		there, never := c.call(w.engine.As(who), m), missing.call(w.engine.As(who), m)
		if !fault.Is(there, fault.NotFound) || !fault.Is(never, fault.NotFound) {
			t.Errorf("%s: outside %v, missing %v", m.Name, there, never)
			continue
		}
		hide := strings.NewReplacer(c.id, "ID", missing.id, "ID", c.refs[m.Name]+" ", "ID ", missing.refs[m.Name]+" ", "ID ",
			`"`+c.refs[m.Name]+`"`, `"ID"`, `"`+missing.refs[m.Name]+`"`, `"ID"`)
		if a, b := hide.Replace(there.Error()), hide.Replace(never.Error()); a != b {
			t.Errorf("%s tells them apart: %q and %q", m.Name, a, b)
		}
	}
	a := w.engine.As(who)
	for ref, found := range map[string]bool{other.ID: true, "other": true, "dev": false} {
		if _, err := a.Get(t.Context(), ref); (err == nil) != found {
			t.Errorf("get %s: %v", ref, err)
		}
	}
	list, total, err := a.List(t.Context(), sandbox.ListRequest{})
	if err != nil || total != 1 || len(list) != 1 || list[0].ID != other.ID {
		t.Errorf("list: %d, %v, %v", total, list, err)
	}
	if snaps, _, err := a.Snapshots(t.Context(), sandbox.SnapshotFilter{}); err != nil || len(snaps) != 0 {
		t.Errorf("snapshots: %v, %v", snaps, err)
	}
	_, err = a.Create(t.Context(), sandbox.CreateRequest{})
	wantCode(t, err, fault.Denied)
	_, err = a.Stats(t.Context(), "", time.Time{}, time.Time{})
	wantCode(t, err, fault.Denied)
	_, err = a.Fork(t.Context(), other.ID, sandbox.ForkRequest{})
	wantCode(t, err, fault.Denied)
}

// A name in a scope is the sandbox that has it now, and nobody else's.
func TestFenceByName(t *testing.T) {
	w := newWorld(t)
	mine, theirs := w.create(alice, sandbox.CreateRequest{Name: "dev"}), w.create(bob, sandbox.CreateRequest{Name: "dev"})
	who := alice
	who.Scope.Sandboxes = []string{"dev"}
	get := func(who keys.Principal, ref string) error {
		_, err := w.engine.As(who).Get(t.Context(), ref)
		return err
	}
	if err := errors.Join(get(who, "dev"), get(who, mine.ID)); err != nil {
		t.Error(err)
	}
	wantCode(t, get(who, theirs.ID), fault.NotFound)
	boss := admin
	boss.Scope.Sandboxes = []string{"dev"}
	wantCode(t, get(boss, theirs.ID), fault.NotFound)
	if err := w.engine.As(alice).Delete(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	next := w.create(alice, sandbox.CreateRequest{Name: "dev"})
	if err := get(who, next.ID); err != nil {
		t.Error(err)
	}
}

// A key of a project makes sandboxes in it and nowhere else, and one that may
// not read is not told what is set in a sandbox.
func TestScopeOfProjectAndReading(t *testing.T) {
	w := newWorld(t)
	who := alice
	who.Scope.Projects = []string{"web"}
	s := w.create(who, sandbox.CreateRequest{Env: map[string]string{"TOKEN": "secret"}})
	if s.Project != "web" {
		t.Errorf("made in %q", s.Project)
	}
	_, err := w.engine.As(who).Create(t.Context(), sandbox.CreateRequest{Project: "db"})
	wantCode(t, err, fault.Denied)
	fork, err := w.engine.As(who).Fork(t.Context(), s.ID, sandbox.ForkRequest{})
	if err != nil || fork.Project != "web" {
		t.Errorf("fork: %v, %v", fork.Project, err)
	}
	who.Scope.Verbs = []keys.Verb{keys.Shell}
	got, err := w.engine.As(who).Get(t.Context(), s.ID)
	if err != nil || got.ID != s.ID || got.Env != nil {
		t.Errorf("without read: %+v, %v", got, err)
	}
}
