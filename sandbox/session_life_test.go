package sandbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A session goes on without its server, and is found again.
func TestSessionOutlivesTheServer(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request("main"))
	c.types("before 1\n")
	c.shows("got before 1")
	quits := request("quits")
	quits.Command.Args = []string{"/bin/sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 6"}
	w.session(alice, s.ID, quits).shows("up")
	w.close()
	if r := w.open(); r.Sessions != 2 {
		t.Fatalf("found again: %+v", r)
	}
	if rec := w.record(s.ID, "main", is(sandbox.SessionDetached)); rec.DetachedAt.IsZero() || rec.EndsAt.Sub(rec.DetachedAt) != 24*time.Hour {
		t.Errorf("found again as %+v", rec)
	}
	back := w.session(alice, s.ID, request("main"))
	back.shows("got before 1")
	back.types("after 2\n")
	back.shows("got after 2")
	id := w.record(s.ID, "quits", is(sandbox.SessionDetached)).ID
	must(t, w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}))
	if rec := w.record(s.ID, id, is(sandbox.SessionEnded)); rec.Exit == nil || rec.Exit.Code != 6 {
		t.Errorf("ended without a client: %+v", rec)
	}
}

// What ends while no server looks is on record when one comes.
func TestSessionEndsWithoutAServer(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", "echo $$ >pid; while [ ! -e go ]; do sleep 0.01; done; touch gone; exit 7"}
	c := w.session(alice, s.ID, r)
	opened, _ := c.proc.Session()
	w.close()
	dir := w.host.Dir(s.ID)
	writeFile(t, dir+"/go")
	waitFile(t, dir+"/gone")
	w.open()
	if rec := w.record(s.ID, opened.ID, is(sandbox.SessionEnded)); rec.Exit == nil || rec.Exit.Code != 7 {
		t.Errorf("ended %+v", rec)
	}
	w.forgotten(s.ID)
}

// A session sleeps with its sandbox, and whoever comes back wakes both.
func TestSessionOverAPause(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request("main"))
	c.types("before 1\n")
	c.shows("got before 1")
	w.pause(s.ID)
	if _, err := c.end(); !fault.Is(err, fault.State) || !strings.Contains(err.Error(), "was paused") || !strings.Contains(err.Error(), `"main"`) {
		t.Errorf("over a pause: %v", err)
	}
	if rec := w.record(s.ID, "main", is(sandbox.SessionDetached)); !rec.EndsAt.IsZero() {
		t.Errorf("its time runs in a pause: %+v", rec)
	}
	w.now.advance(100 * time.Hour)
	w.engine.Reap(t.Context())
	w.restart() // it is found asleep
	w.engine.Reap(t.Context())
	_, err := w.engine.As(alice).Resume(t.Context(), s.ID)
	must(t, err)
	if rec := w.record(s.ID, "main", is(sandbox.SessionDetached)); rec.EndsAt.Before(w.now.Now().Add(23 * time.Hour)) {
		t.Errorf("its time does not run from the resume on: %+v", rec)
	}
	w.pause(s.ID)
	back := w.session(alice, s.ID, request("main"))
	back.shows("got before 1")
	back.types("after 2\n")
	back.shows("got after 2")
	w.status(s.ID, sandbox.Idle)
}

// Whatever ends the processes of a sandbox ends its sessions, and says why.
func TestSessionsEndWithTheirSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world, id string)
		want string
	}{
		"delete":  {func(w *world, id string) { must(w.t, w.engine.As(alice).Delete(w.t.Context(), id)) }, "deleted"},
		"death":   {func(w *world, id string) { w.host.Kill(id) }, ""},
		"restore": {restoreOf, "checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.create(alice, sandbox.CreateRequest{})
			attached, free := w.session(alice, s.ID, request("attached")), w.session(alice, s.ID, request("free"))
			first, _ := attached.proc.Session()
			second, _ := free.proc.Session()
			free.leave()
			c.do(w, s.ID)
			exit, err := attached.end()
			if err == nil && exit.Signal == "" {
				t.Errorf("its client was told of no end: %+v", exit)
			}
			for _, id := range []string{first.ID, second.ID} {
				rec := w.record("", id, is(sandbox.SessionEnded))
				killed := c.want == "" && rec.Exit != nil && rec.Exit.Signal != "" // its processes died first
				if !killed && (rec.Exit != nil || rec.Reason == "" || !strings.Contains(rec.Reason, c.want)) {
					t.Errorf("ended %+v", rec)
				}
			}
		})
	}
	t.Run("pause without memory", func(t *testing.T) {
		w := newWorld(t)
		w.close()
		w.unsupported = map[string]string{driver.FeatureCheckpoint: "not here"}
		w.open()
		s := w.create(alice, sandbox.CreateRequest{})
		c := w.session(alice, s.ID, request("main"))
		opened, _ := c.proc.Session()
		w.pause(s.ID)
		if _, err := c.end(); err == nil {
			t.Error("its client was told of no error")
		}
		if rec := w.record("", opened.ID, is(sandbox.SessionEnded)); !strings.Contains(rec.Reason, "paused") {
			t.Errorf("ended %+v", rec)
		}
	})
}

func restoreOf(w *world, id string) {
	_, err := w.engine.As(alice).CreateCheckpoint(w.t.Context(), id, "point")
	must(w.t, err)
	_, err = w.engine.As(alice).RestoreCheckpoint(w.t.Context(), id, "point")
	must(w.t, err)
}

// A copy has no sessions.
func TestForkHasNoSessions(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request("main"))
	made, err := w.engine.As(alice).Fork(t.Context(), s.ID, sandbox.ForkRequest{})
	must(t, err)
	if list, err := w.engine.As(alice).Sessions(t.Context(), made.ID, true); err != nil || len(list) != 0 {
		t.Errorf("the fork has %+v, %v", list, err)
	}
	c.types("still here\n")
	c.shows("got still here")
}

// Nobody comes back: the session is ended when its time is up, and what it
// prints keeps its sandbox from being idle until then.
func TestSessionKeep(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.SessionKeep = time.Hour })
	s := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, s.ID, request("main"))
	opened, _ := c.proc.Session()
	w.now.advance(10 * time.Hour) // attached ones have no clock
	w.engine.Reap(t.Context())
	c.types("here 1\n")
	c.shows("got here 1")
	c.leave()
	w.record(s.ID, "main", is(sandbox.SessionDetached))
	w.now.advance(59 * time.Minute)
	w.engine.Reap(t.Context())
	w.restart()
	w.record(s.ID, "main", is(sandbox.SessionDetached))
	w.now.advance(2 * time.Minute)
	w.engine.Reap(t.Context())
	rec := w.record(s.ID, opened.ID, is(sandbox.SessionEnded))
	if !strings.Contains(rec.Reason, "nobody was attached to it for 1h") || rec.Exit == nil || rec.Exit.Signal != "HUP" {
		t.Errorf("ended %+v", rec)
	}
}

func TestKeepForEver(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.SessionKeep = -1 })
	s := w.create(alice, sandbox.CreateRequest{})
	w.session(alice, s.ID, request("main")).leave()
	w.now.advance(10_000 * time.Hour)
	w.engine.Reap(t.Context())
	if rec := w.record(s.ID, "main", is(sandbox.SessionDetached)); !rec.EndsAt.IsZero() {
		t.Errorf("%+v", rec)
	}
}

// The output of a detached session is activity; that it is open is none.
func TestDetachedOutputIsActivity(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Timeouts: sandbox.Timeouts{Idle: time.Hour}})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.01; done; echo said; sleep 1000"}
	c := w.session(alice, s.ID, r)
	c.shows("up")
	c.leave()
	before := w.record(s.ID, "main", is(sandbox.SessionDetached)).ActiveAt
	w.now.advance(50 * time.Minute)
	writeFile(t, w.host.Dir(s.ID)+"/go")
	w.record(s.ID, "main", func(s sandbox.Session) bool { return s.ActiveAt.After(before.Add(40 * time.Minute)) })
	w.now.advance(20 * time.Minute)
	w.engine.Reap(t.Context())
	w.status(s.ID, sandbox.Idle)
	w.now.advance(time.Hour)
	w.engine.Reap(t.Context())
	w.status(s.ID, sandbox.Terminated)
}

func TestSessionQuota(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.MaxSessions, c.MaxViewers = 2, 3 })
	s := w.create(alice, sandbox.CreateRequest{})
	for range 2 {
		w.session(alice, s.ID, request(""))
	}
	_, err := w.tryOpen(alice, s.ID, request(""), nil)
	if wantCode(t, err, fault.Exhausted); !strings.Contains(err.Error(), "2 sessions") {
		t.Error(err)
	}
	for range 2 {
		w.session(alice, s.ID, request("s1"))
	}
	_, err = w.tryOpen(alice, s.ID, request("s1"), nil)
	if wantCode(t, err, fault.Exhausted); !strings.Contains(err.Error(), "3 clients") {
		t.Error(err)
	}
}

func TestRenameAndKill(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	one, two := w.session(alice, s.ID, request("one")), w.session(alice, s.ID, request("two"))
	_, err := a.RenameSession(t.Context(), s.ID, "one", "two")
	wantCode(t, err, fault.Exists)
	_, err = a.RenameSession(t.Context(), s.ID, "one", "root")
	wantCode(t, err, fault.Invalid)
	rec, err := a.RenameSession(t.Context(), s.ID, "one", "first")
	if err != nil || rec.Name != "first" || len(rec.Viewers) != 1 {
		t.Errorf("renamed %+v, %v", rec, err)
	}
	_, err = a.Session(t.Context(), s.ID, "one")
	wantCode(t, err, fault.NotFound)
	w.session(alice, s.ID, request("first")).leave()
	w.session(alice, s.ID, request("one")).leave() // the name is free
	for _, do := range []func(string) error{
		func(name string) error { return w.engine.As(bob).KillSession(t.Context(), s.ID, name) },
		func(name string) error { return w.engine.As(bob).DetachSession(t.Context(), s.ID, name) },
		func(name string) error {
			_, err := w.engine.As(bob).RenameSession(t.Context(), s.ID, name, "x")
			return err
		},
		func(name string) error { _, err := w.engine.As(bob).Session(t.Context(), "", name); return err },
	} {
		wantCode(t, do(rec.ID), fault.NotFound)
	}
	// A program that does not mind a hangup goes all the same.
	r := request("stubborn")
	r.Command.Args = []string{"/bin/sh", "-c", "trap '' HUP TERM; echo up; while :; do sleep 0.05; done"}
	w.session(alice, s.ID, r).shows("up")
	must(t, a.KillSession(t.Context(), s.ID, "stubborn"))
	must(t, a.KillSession(t.Context(), s.ID, "two"))
	if exit, err := two.end(); err != nil || exit.Signal != "HUP" {
		t.Errorf("its client: %+v, %v", exit, err)
	}
	second, _ := two.proc.Session()
	if rec := w.record("", second.ID, is(sandbox.SessionEnded)); rec.Reason != "ended by alice" {
		t.Errorf("%+v", rec)
	}
	must(t, a.KillSession(t.Context(), "", second.ID)) // again
	must(t, one.proc.Kill(t.Context()))
	w.pause(s.ID)
	must(t, a.KillSession(t.Context(), s.ID, "one")) // which wakes the sandbox
	if list, err := a.Sessions(t.Context(), s.ID, false); err != nil || len(list) != 0 {
		t.Errorf("live: %+v, %v", list, err)
	}
	if list, err := a.Sessions(t.Context(), s.ID, true); err != nil || len(list) != 4 {
		t.Errorf("all: %+v, %v", list, err)
	}
}

// A server that dies at any moment leaves no process without a record and no
// record without an end.
func TestSessionCrashes(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	for i := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan struct{})
		go func() {
			defer close(opened)
			r := request(fmt.Sprint("n", i%3))
			if i%4 == 3 {
				r.Command.Args = []string{"/bin/sh", "-c", "exit 1"}
			}
			if p, err := w.engine.As(alice).OpenSession(ctx, s.ID, r, outputTo(nil)); err == nil {
				_, _ = p.Wait(ctx)
			}
		}()
		timer := time.NewTimer(time.Duration(i*i) * 300 * time.Microsecond)
		<-timer.C
		w.store.Close() // nothing is written any more
		cancel()
		<-opened
		w.restart()
		w.agree(s.ID)
	}
}

// agree waits until the records of sessions and the guest's processes are the
// same.
func (w *world) agree(id string) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		live, err := w.store.Sessions(w.t.Context(), sandbox.SessionFilter{SandboxID: id, LiveOnly: true})
		must(w.t, err)
		recorded, running := map[string]bool{}, map[string]bool{}
		for _, s := range live {
			recorded[s.ID] = true
		}
		for _, p := range w.processes(id) {
			if p.Label == "session" && !p.Exited { // an exit is kept until somebody has asked for it, or for a while
				running[p.ID] = true
			}
		}
		if fmt.Sprint(recorded) == fmt.Sprint(running) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("on record %v, in the guest %v", recorded, running)
		}
	}
}
