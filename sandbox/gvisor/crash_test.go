package gvisor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// TestCrash kills the sentry, the gofer, and both behind the driver's back.
func TestCrash(t *testing.T) {
	r := newRig(t)
	for _, which := range []string{"sentry", "gofer"} {
		r.boot(t, which)
		r.sh(t, which, "echo kept >/kept; sync")
		s, err := r.readState(which)
		must(t, err)
		pid := s.Sandbox.PID
		if which == "gofer" {
			pid = s.Gofer
		}
		waited := make(chan driver.Status, 1)
		go func() {
			s, _ := r.Wait(context.Background(), which)
			waited <- s
		}()
		p := r.Driver.open(which, pid)
		if p == nil {
			t.Fatalf("the %s is not recognised", which)
		}
		must(t, p.kill())
		p.close()
		if which == "gofer" {
			r.stop(t, which, 0)
		}
		status := <-waited
		if status.State != driver.Stopped {
			t.Errorf("%+v", status)
		}
		t.Logf("%+v", status)
		must(t, r.Start(t.Context(), which))
		if r.host().storage == hostOverlay {
			r.want(t, which, "cat /kept", "kept")
		}
	}
}

// TestRestart drops the driver, as a crash of the server does, and goes on
// with a new one.
func TestRestart(t *testing.T) {
	r := newRig(t)
	r.boot(t, "survivor")
	r.sh(t, "survivor", "echo 1 >/f")
	must(t, r.Driver.Close())
	r.Driver = r.Driver.reopen(t)
	r.want(t, "survivor", "cat /f", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Wait(ctx, "survivor"); err == nil {
		t.Error("Wait returned while the sandbox runs")
	}
}

func (d *Driver) reopen(t *testing.T) *Driver {
	t.Helper()
	n, err := New(Config{StateDir: d.dir, Log: d.log, Executable: d.executable})
	must(t, err)
	return n
}

// TestLeftovers takes directories away from sandboxes and wants the rest to be
// found and removed.
func TestLeftovers(t *testing.T) {
	r := newRig(t)
	r.boot(t, "gone")
	r.boot(t, "here")
	must(t, os.RemoveAll(r.box("gone").dir))
	left, err := r.Leftovers(t.Context(), false)
	must(t, err)
	t.Log(strings.Join(left, "\n"))
	if len(left) < 4 {
		t.Errorf("found %q", left)
	}
	for _, line := range left {
		if strings.Contains(line, "here") {
			t.Errorf("%q belongs to a sandbox", line)
		}
	}
	_, err = r.Leftovers(t.Context(), true)
	must(t, err)
	if left, err = r.Leftovers(t.Context(), false); err != nil || len(left) > 0 {
		t.Errorf("after fixing: %q, %v", left, err)
	}
	r.want(t, "here", "echo ok", "ok")
}

// TestNothingOnHost holds that a running sandbox shows no mount on the host
// and a removed one leaves nothing.
func TestNothingOnHost(t *testing.T) {
	r := newRig(t)
	r.boot(t, "quiet", func(s *driver.Spec) {
		if r.host().storage == hostOverlay && r.host().disk.OK {
			s.Limits.DiskBytes = 32 << 20
		}
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), r.dir) {
		t.Errorf("mounts on the host:\n%s", mounts)
	}
	must(t, r.Remove(t.Context(), "quiet"))
	out, _ := exec.Command("losetup", "--list").Output()
	if strings.Contains(string(out), r.dir) {
		t.Errorf("loop devices:\n%s", out)
	}
	for _, tree := range r.host().trees {
		if _, err := os.Stat(filepath.Join(tree, r.cgroup)); err == nil {
			t.Errorf("cgroup %s", filepath.Join(tree, r.cgroup))
		}
	}
	entries, err := os.ReadDir(r.boxDir())
	must(t, err)
	run, err := os.ReadDir(r.runDir())
	must(t, err)
	if len(entries)+len(run) > 0 {
		t.Errorf("files: %v %v", entries, run)
	}
}

// TestLongStateDir has a state directory longer than the name of a socket may
// be, with characters that mean something in mount options.
func TestLongStateDir(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.dir, strings.Repeat("long name/", 12), "end")
	if r.root {
		dir += `,a:b\c`
	}
	d, err := New(Config{StateDir: dir, Log: r.log, Executable: r.executable})
	must(t, err)
	defer d.Close()
	was := r.Driver
	r.Driver = d
	defer func() { r.Driver = was }()
	r.boot(t, "far")
	r.want(t, "far", "echo hi", "hi")
	must(t, d.Remove(t.Context(), "far"))
}

// TestTornLife starts a sandbox whose last words a crash of the host cut off.
func TestTornLife(t *testing.T) {
	r := newRig(t)
	r.boot(t, "torn")
	r.sh(t, "torn", "echo kept >/kept")
	r.stop(t, "torn", 0)
	must(t, os.WriteFile(r.box("torn").life(), nil, 0o600))
	s, err := r.Inspect(t.Context(), "torn")
	if err != nil || s.State != driver.Stopped {
		t.Errorf("%+v, %v", s, err)
	}
	must(t, r.Start(t.Context(), "torn"))
	r.want(t, "torn", "cat /kept", "kept")
}
