package drivertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// hogLimit is the process limit of the bombs.
const hogLimit = 200

// hogMemory is the memory limit of what takes memory.
const hogMemory = 256 << 20

// taking starts a command of the attacking program that takes something and
// holds it until release. It waits until the command has got what it gets.
func (b *box) taking(t *testing.T, user string, args ...string) (*guest.Process, *screen) {
	t.Helper()
	out := newScreen()
	cmd := guest.Command{ID: newID(), Args: append([]string{escapeProgram}, args...), User: user}
	p, err := b.conn.Start(ctx(t), cmd, guest.Output{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	t.Cleanup(func() { p.Close() })
	out.wait(t, "ready\n")
	return p, out
}

// release ends such a command.
func (b *box) release(t *testing.T, p *guest.Process) {
	t.Helper()
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx(t)); err != nil || exit.Status() != 0 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
}

// took is how many the attacking program says it took.
func took(t *testing.T, out string) int {
	t.Helper()
	n := 0
	_, number, _ := strings.Cut(out, "took ")
	if _, err := fmt.Sscan(number, &n); err != nil {
		t.Errorf("%q: %v", out, err)
	}
	return n
}

func processes(n int64) func(*driver.Spec) {
	return func(s *driver.Spec) { s.Limits.Processes = n }
}

func memoryLimit(s *driver.Spec) { s.Limits.MemoryBytes = hogMemory }

// testForkBomb holds that a fork bomb ends at the limit, whoever drops it, and
// that the sandbox is of use again after it.
func testForkBomb(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		for _, user := range []string{"", "user"} {
			p, out := b.taking(t, user, "fork", "2000")
			n := took(t, out.String())
			t.Logf("as %q: %s", user, strings.TrimSpace(out.String()))
			if n > hogLimit || n < hogLimit/4 {
				t.Errorf("a fork bomb of %q has made %d processes with a limit of %d", user, n, hogLimit)
			}
			b.ping(t)
			b.release(t, p)
			b.sh(t, "true")
		}
		// Root of a namespace of its own is bound as well.
		r := b.run(t, guest.Command{Args: []string{escapeProgram, "nested", "fork", "2000"}}, "")
		if strings.Contains(r.stdout, "took ") {
			if n := took(t, r.stdout); n > hogLimit {
				t.Errorf("a fork bomb in a user namespace has made %d processes with a limit of %d", n, hogLimit)
			}
		}
		t.Logf("in a user namespace: %d %s", r.exit.Status(), strings.TrimSpace(r.stdout+r.stderr))
		connect(t, e.d, b.id)
	}, processes(hogLimit))
}

// testForkBombWithoutLimit says how far it comes: the bomb itself ends at 1,000.
func testForkBombWithoutLimit(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		p, out := b.taking(t, "", "fork", "1000")
		t.Logf("%s; %d processes on the host", strings.TrimSpace(out.String()), vitals(t).processes)
		b.ping(t)
		b.sh(t, "true")
		b.release(t, p)
		b.until(t, "the bomb is gone", "[ $(ls -d /proc/[0-9]* | wc -l) -lt 50 ]")
	})
}

func testThreadBomb(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		out := newScreen()
		p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: []string{escapeProgram, "threads", "2000"}}, guest.Output{Stdout: out, Stderr: out})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(ctx(t))
		first, _, _ := strings.Cut(out.String(), "\n")
		t.Logf("%+v: %s", exit, first)
		if err == nil && exit.Status() == 0 {
			t.Errorf("2000 threads were made with a limit of %d: %+v", hogLimit, exit)
		}
		if err != nil { // the limit may leave none to the guest itself: its sandbox alone ends
			b.revive(t)
			return
		}
		b.sh(t, "true")
	}, processes(hogLimit))
}

// revive waits until a sandbox answers again, or has ended and is started.
func (b *box) revive(t *testing.T) {
	t.Helper()
	c := ctx(t)
	for c.Err() == nil {
		if conn, err := b.dialAgain(c); err == nil {
			t.Cleanup(func() { conn.Close() })
			b.conn = conn
			return
		}
		if st, err := b.d.Inspect(c, b.id); err == nil && st.State != driver.Running {
			b.start(t)
			b.sh(t, "true")
			return
		}
	}
	t.Errorf("%s neither answers nor ends", b.id)
}

// testZombies holds that the dead of a sandbox are its own, count as processes
// there, and go when their parent does.
func testZombies(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		p, out := b.taking(t, "", "zombies", "500")
		t.Logf("%s", strings.TrimSpace(out.String()))
		took(t, out.String())
		b.ping(t)
		b.release(t, p)
		b.until(t, "PID 1 collects them all", `! cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z '`)
	})
}

// testMemoryHog holds that who takes more memory than there is loses the hog
// or the sandbox, and that the latter says why.
func testMemoryHog(t *testing.T, e *env) {
	e.siege(t, func(b *box) { b.starve(t, escapeProgram+" memory 1024 </dev/null") }, memoryLimit)
}

// testSharedMemoryHog fills what looks like files and is memory.
func testSharedMemoryHog(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		b.starve(t, `for d in /dev/shm /dev /run /tmp; do dd if=/dev/zero of=$d/hog bs=1M count=400; ls -l $d/hog; rm -f $d/hog; done; true`)
	}, memoryLimit)
	e.siege(t, func(b *box) {
		b.starve(t, `dd if=/dev/zero of=/dev/hog bs=1M count=200; dd if=/dev/zero of=/dev/shm/hog bs=1M count=400; `+escapeProgram+` memory 200 </dev/null`)
	}, memoryLimit)
}

// starve runs a script that takes too much memory. When the sandbox dies of
// it, it says so; it is of use, or starts again, in any case.
func (b *box) starve(t *testing.T, script string) {
	t.Helper()
	died := b.wait(ctx(t), b.id)
	out := newScreen()
	p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: []string{"/bin/sh", "-c", script}}, guest.Output{Stdout: out, Stderr: out})
	var exit guest.Exit
	if err == nil {
		exit, err = p.Wait(ctx(t))
	}
	if err == nil {
		t.Logf("the hog ended with %+v: %.300s", exit, out.String())
	}
	// The hog, its relay or all of the sandbox: whatever was killed, either the
	// sandbox is of use or it ends.
	c := ctx(t)
	for c.Err() == nil && err == nil {
		if conn, cerr := b.dialAgain(c); cerr == nil {
			t.Cleanup(func() { conn.Close() })
			p, cerr := conn.Start(c, guest.Command{ID: newID(), NoStdin: true, Args: []string{"/bin/sh", "-c", "true"}}, guest.Output{})
			if cerr == nil {
				if exit, cerr := p.Wait(c); cerr == nil && exit.Status() == 0 {
					b.conn = conn
					return
				}
			}
		}
		if st, serr := b.d.Inspect(c, b.id); serr == nil && st.State != driver.Running {
			break
		}
	}
	w := <-died
	if w.err != nil {
		t.Fatal(w.err)
	}
	t.Logf("the sandbox ended: %+v", w.status.Exit)
	checkState(t, w.status, b.id, driver.Stopped)
	checkOOM(t, w.status)
	b.start(t)
	b.sh(t, "true")
}

// testDiskHog fills the disk from many files at once, and wants it back.
func testDiskHog(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		for round := range 2 {
			r := b.try(t, `mkdir -p hog; for i in 1 2 3 4; do dd if=/dev/zero of=hog/$i bs=1M count=64 & done; wait; du -sm hog`)
			if !strings.Contains(r.stderr, "No space left") && !strings.Contains(r.stderr, "quota exceeded") {
				t.Errorf("round %d: 256 MiB in a limit of 64: %q", round, r.stdout+r.stderr)
			}
			var used int
			if _, err := fmt.Sscan(r.stdout, &used); err != nil || used > 72 {
				t.Errorf("round %d: %q MiB are used: %v", round, r.stdout, err)
			}
			b.ping(t)
			b.sh(t, "rm -r hog && dd if=/dev/zero of=small bs=1M count=32 && rm small")
		}
	}, func(s *driver.Spec) { s.Limits.DiskBytes = 64 << 20 })
}

// testInodeHog makes very many files, with a limit of the disk where there can
// be one: the sandbox may run out of them, alone, and has them back.
func testInodeHog(t *testing.T, e *env) {
	limited := e.support(t, driver.FeatureDiskLimit).OK
	e.siege(t, func(b *box) {
		out := b.escape(t, "", "inodes", "20000")
		t.Logf("with a disk limit %v: %s", limited, strings.TrimSpace(out))
		took(t, out)
		b.ping(t)
		b.sh(t, "rm -rf /workspace/* && echo fits >f && cat f")
	}, func(s *driver.Spec) {
		if limited {
			s.Limits.DiskBytes = 64 << 20
		}
	})
}

// testDescriptorHog takes all descriptors a process gets, as many times as it
// takes to see that they are the process's and not the sandbox's.
func testDescriptorHog(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		p, out := b.taking(t, "", "descriptors", "100000")
		t.Logf("%s", strings.TrimSpace(out.String()))
		took(t, out.String())
		b.sh(t, "true")
		b.release(t, p)
	})
}

// testWatchHog takes inotify instances, which a kernel counts for each user of
// its own: a sandbox must still start and run while they are gone.
func testWatchHog(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		p, out := b.taking(t, "", "watches", "1000")
		n := took(t, out.String())
		other := e.boot(t)
		other.sh(t, "true")
		other.arm(t)
		q, seen := other.taking(t, "", "watches", "10")
		t.Logf("%s; a neighbour gets %s", strings.TrimSpace(out.String()), strings.TrimSpace(seen.String()))
		if n < 1000 && took(t, seen.String()) < 10 {
			t.Log("this driver's sandboxes share the host's count of inotify instances")
		}
		other.release(t, q)
		b.release(t, p)
	})
}
