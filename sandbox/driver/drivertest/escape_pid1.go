package drivertest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// testPIDOneAsUser holds that a user of a sandbox has no power over its PID 1,
// which is root, and cannot play the host on the socket of the relays.
func testPIDOneAsUser(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		boot := b.conn.Hello().BootID
		results := tries(b.escape(t, "user", "pid1"))
		if len(results) < 20 {
			t.Errorf("only %d tries", len(results))
		}
		for _, name := range slices.Sorted(maps.Keys(results)) {
			if result := results[name]; result == "granted" {
				t.Errorf("%s: %s", name, result)
			}
		}
		for _, args := range [][]string{{"trace"}, {"connections", "1"}, {"signals", "1"}} {
			r := b.run(t, guest.Command{Args: append([]string{escapeProgram}, args...), User: "user"}, "")
			if r.exit.Status() != 1 || !strings.Contains(r.stderr, "permitted") && !strings.Contains(r.stderr, "denied") {
				t.Errorf("%q as a user: %+v", args, r)
			}
		}
		if conn := connect(t, e.d, b.id); conn.Hello().BootID != boot {
			t.Error("the sandbox booted anew")
		}
	})
}

// testPIDOneAsRoot holds that whatever root of a sandbox sends to PID 1 harms
// at most this sandbox, which then says that it has ended and starts again, and
// that asking PID 1 to end does so.
func testPIDOneAsRoot(t *testing.T, e *env) {
	durable := e.support(t, driver.FeatureDurableFiles).OK
	e.siege(t, func(b *box) {
		b.sh(t, "echo kept >/kept")
		for _, script := range []string{"kill -9 1", "kill -STOP 1; kill -CONT 1", "kill -SEGV 1; kill -ABRT 1; kill -QUIT 1", escapeProgram + " signals 20000", "kill -TERM 1"} {
			boot := b.conn.Hello().BootID
			died := e.wait(ctx(t), b.id)
			p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: []string{"/bin/sh", "-c", script}}, guest.Output{})
			if err == nil {
				_, err = p.Wait(ctx(t))
			}
			if err == nil && script != "kill -TERM 1" {
				b.ping(t)
				if conn := connect(t, e.d, b.id); conn.Hello().BootID != boot {
					t.Errorf("%q: the sandbox booted anew", script)
				}
				continue
			}
			w := <-died
			if w.err != nil {
				t.Fatalf("%q: %v", script, w.err)
			}
			t.Logf("%q ends the sandbox: %+v", script, w.status.Exit)
			checkState(t, w.status, b.id, driver.Stopped)
			if w.status.Exit.OOM || !oneLine(w.status.Exit.Reason) {
				t.Errorf("%q: the exit is %+v", script, w.status.Exit)
			}
			b.start(t)
			if got := b.try(t, "cat /kept").stdout; got != "kept\n" && durable {
				t.Errorf("%q: after the end: %q", script, got)
			}
			b.arm(t)
		}
	})
}

// testPIDOneTraced lets root take PID 1 apart as a debugger, where the kernel
// lets it. Whatever comes of it, the driver knows whether the sandbox runs.
func testPIDOneTraced(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		c, cancel := context.WithTimeout(ctx(t), 10*time.Second)
		defer cancel()
		died := e.wait(ctx(t), b.id)
		out := newScreen()
		p, err := b.conn.Start(c, guest.Command{ID: newID(), NoStdin: true, Args: []string{escapeProgram, "trace"}}, guest.Output{Stdout: out, Stderr: out})
		var exit guest.Exit
		if err == nil {
			exit, err = p.Wait(c)
		}
		if err == nil && exit.Status() != 0 {
			if !strings.Contains(out.String(), "not permitted") {
				t.Errorf("%+v %q", exit, out.String())
			}
			t.Logf("refused: %s", out.String())
			connect(t, e.d, b.id)
			return
		}
		// PID 1 has lost its way: it has died of that, or it does not answer
		// and is stopped from outside.
		if c.Err() != nil {
			t.Log("PID 1 hangs")
			b.stop(t, 0)
		}
		w := <-died
		if w.err != nil {
			t.Fatal(w.err)
		}
		t.Logf("the sandbox ended: %+v", w.status.Exit)
		checkState(t, w.status, b.id, driver.Stopped)
		b.start(t)
		b.sh(t, "true")
	})
}

// testRelayFlood holds that a sandbox that opens streams to its own PID 1, as
// root can, shuts out itself at most for a while and the host from nobody
// else.
func testRelayFlood(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		p, out := b.taking(t, "", "connections", "500")
		t.Logf("%s", strings.TrimSpace(out.String()))
		conn := b.reconnect(t)
		if err := conn.Ping(ctx(t)); err != nil {
			t.Error(err)
		}
		b.release(t, p)
		b.ping(t)
	})
}
