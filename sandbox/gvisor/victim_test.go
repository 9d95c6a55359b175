package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

// victimVariable makes this test program a server that will be killed: it
// creates, starts, stops and removes sandboxes until then.
const victimVariable = "SANDGATE_TEST_VICTIM"

// order is what a victim is told.
type order struct {
	StateDir, Executable string
	Spec                 driver.Spec
	Saves                string // where to save a sandbox that is there, instead
}

func runVictim(file string) {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, cause(err))
			os.Exit(1)
		}
	}
	var o order
	die(readJSON(file, &o))
	d, err := New(Config{StateDir: o.StateDir, Executable: o.Executable})
	die(err)
	d.host()
	fmt.Println("ready")
	if o.Saves != "" {
		for i := 0; ; i++ {
			ctx := context.Background()
			die(d.Save(ctx, o.Spec.ID, filepath.Join(o.Saves, fmt.Sprint(os.Getpid(), "-", i))))
			die(d.Suspend(ctx, o.Spec.ID))
			back, err := d.Resume(ctx, o.Spec.ID)
			die(err)
			if !back.Memory {
				die(errors.New(back.Reason))
			}
		}
	}
	for i := 0; ; i++ {
		ctx := context.Background()
		s := o.Spec
		s.ID = fmt.Sprintf("v%d-%d", os.Getpid(), i)
		die(d.Create(ctx, s))
		die(d.Start(ctx, s.ID))
		if i%2 == 0 {
			die(d.Stop(ctx, s.ID, 0))
			die(d.Remove(ctx, s.ID))
		}
	}
}

// TestKilledServer kills servers at many moments of their work. Whatever the
// moment, the next server finds all that is there, takes it on or away, and
// nothing is left.
func TestKilledServer(t *testing.T) {
	r := newRig(t)
	s := r.spec("x")
	if r.host().disk.OK {
		s.Limits.DiskBytes = minDisk
	}
	text, err := json.Marshal(order{StateDir: r.dir, Executable: gvisortest.Executable(t), Spec: s})
	must(t, err)
	file := filepath.Join(filepath.Dir(r.guest), "order.json")
	must(t, os.WriteFile(file, text, 0o600))
	states := make(map[driver.State]int)
	for round := range 12 {
		kill(t, file, time.Duration(3+round*17)*time.Millisecond)
		d := r.reopen(t)
		list, err := d.List(t.Context())
		must(t, err)
		for _, s := range list {
			states[s.State]++
			if s.State != driver.Broken {
				if err := d.Start(t.Context(), s.ID); err != nil {
					t.Errorf("start what the victim left %s: %v", s.State, cause(err))
				}
			}
			if err := d.Remove(t.Context(), s.ID); err != nil {
				t.Errorf("remove what the victim left %s: %v", s.State, cause(err))
			}
		}
		// A directory in the trash is all that may be left.
		left, err := d.Leftovers(t.Context(), true)
		must(t, err)
		for _, line := range left {
			if filepath.Dir(line) != d.trashDir() && !strings.HasPrefix(filepath.Base(line), probePrefix) {
				t.Errorf("left behind: %s", line)
			}
		}
		must(t, d.Close())
	}
	t.Logf("the victims left %v", states)
}

// kill runs a victim and kills it after a while.
func kill(t *testing.T, orderFile string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+orderFile)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// What is left of a server that was killed is not its child any more.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatalf("the victim: %v: %s", err, stderr.String())
	}
	time.Sleep(after) // the moment of the crash
	must(t, cmd.Process.Kill())
	cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatal(stderr.String())
	}
}

// TestKilledWhileSaving kills servers that save, suspend and resume a sandbox.
// It runs, or is stopped with all its files, or suspended with all its
// processes; and what was saved is whole or not there.
func TestKilledWhileSaving(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s")
	text, err := json.Marshal(order{StateDir: r.dir, Executable: gvisortest.Executable(t), Spec: r.spec("s"), Saves: r.saves(t)})
	must(t, err)
	file := filepath.Join(filepath.Dir(r.guest), "order.json")
	must(t, os.WriteFile(file, text, 0o600))
	found := make(map[string]int)
	for round := range 16 {
		if s, err := r.Inspect(t.Context(), "s"); err != nil || s.State != driver.Running {
			must(t, r.Start(t.Context(), "s"))
		}
		r.sh(t, "s", fmt.Sprintf("echo %d >/round; rm -f /count; sync; %s", round, counter))
		if r.host().storage == sentryFile { // which keeps files at a stop only
			r.stop(t, "s", 0)
			must(t, r.Start(t.Context(), "s"))
		}
		kill(t, file, time.Duration(2+round*13)*time.Millisecond)

		must(t, r.Driver.Close())
		r.Driver = r.reopen(t)
		s, err := r.Inspect(t.Context(), "s")
		must(t, err)
		found[fmt.Sprint(s.State, " ", s.Memory, " ", r.box("s").isHeld())]++
		back, err := r.Resume(t.Context(), "s")
		must(t, err)
		// A launcher that the server left may have brought it back meanwhile.
		if s.Memory && !back.Memory {
			t.Errorf("%+v came back with %+v", s, back)
		}
		r.want(t, "s", "cat /round", fmt.Sprint(round))
		if back.Memory && r.host().storage == hostOverlay {
			r.moves(t, "s")
		}
		saved, err := os.ReadDir(r.saves(t))
		must(t, err)
		for _, e := range saved {
			dir := filepath.Join(r.saves(t), e.Name())
			if filepath.Ext(dir) == "" {
				must(t, r.Export(t.Context(), dir, io.Discard))
			} else {
				dir = strings.TrimSuffix(dir, filepath.Ext(dir))
			}
			must(t, r.Discard(t.Context(), dir))
		}
	}
	t.Logf("the victims left it %v", found)
}

// TestFrozenSandbox stops the sentry, as a debugger or an exhausted host does:
// whoever asks gets an answer in time, and it can be ended.
func TestFrozenSandbox(t *testing.T) {
	r := newRig(t)
	r.boot(t, "frozen")
	s, err := r.readState("frozen")
	must(t, err)
	must(t, unix.Kill(s.Sandbox.PID, unix.SIGSTOP))
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := r.Dial(short(), "frozen"); !fault.Is(err, fault.Timeout) {
		t.Errorf("dial: %v", err)
	}
	if _, err := r.Usage(short(), "frozen"); !fault.Is(err, fault.Timeout) {
		t.Errorf("usage: %v", err)
	}
	if s, err := r.Inspect(short(), "frozen"); err != nil || s.State != driver.Running {
		t.Errorf("inspect: %+v, %v", s, err)
	}
	must(t, r.Remove(t.Context(), "frozen"))
}

// TestNoDescriptorLeaks counts what lives and streams leave open.
func TestNoDescriptorLeaks(t *testing.T) {
	r := newRig(t)
	life := func() {
		r.boot(t, "leaky")
		for range 5 {
			r.want(t, "leaky", "echo hi", "hi")
		}
		r.stop(t, "leaky", 0)
		must(t, r.Remove(t.Context(), "leaky"))
	}
	count := func() int {
		r.background(func() {}) // relays are collected in the background
		r.wg.Wait()
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	life() // what is opened once
	before := count()
	for range 3 {
		life()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
