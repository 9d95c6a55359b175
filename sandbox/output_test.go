package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// stamped splits output with times into the times and the rest.
func stamped(t *testing.T, out string) (times []time.Time, rest string) {
	t.Helper()
	for line := range strings.Lines(out) {
		stamp, text, ok := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if !ok || err != nil || len(stamp) != len("2006-01-02T15:04:05.000000000Z") {
			t.Fatalf("line %q has no time: %v", line, err)
		}
		times, rest = append(times, at), rest+text
	}
	return times, rest
}

// Times are those at which lines came, whenever one asks, and whoever was the
// server then.
func TestOutputTimes(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	j := w.job(s.ID, "sh", "-c", "echo one; while [ ! -e 1 ]; do sleep 0.01; done; printf 'tw'; while [ ! -e 2 ]; do sleep 0.01; done; echo o; echo three")
	first := w.now.Now()
	w.prints(j.ID, "one")
	w.now.advance(time.Hour)
	if err := a.WriteFile(t.Context(), s.ID, sandbox.File{Path: "1"}); err != nil {
		t.Fatal(err)
	}
	for w.jobOutput(j.ID, sandbox.OutputOptions{}) != "one\ntw" {
		runtime.Gosched()
	}
	w.restart()
	w.now.advance(time.Hour)
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "2"}); err != nil {
		t.Fatal(err)
	}
	w.ended(j.ID)
	times, rest := stamped(t, w.jobOutput(j.ID, sandbox.OutputOptions{Timestamps: true}))
	if rest != "one\ntwo\nthree\n" {
		t.Fatalf("printed %q", rest)
	}
	for i, want := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		if got := times[i].Sub(first); got < want-time.Minute || got > want+time.Minute {
			t.Errorf("line %d came after %s, want %s", i, got, want)
		}
	}
	for tail, want := range map[int]string{1: "three\n", 2: "two\nthree\n", 3: "one\ntwo\nthree\n", 9: "one\ntwo\nthree\n"} {
		if got := w.jobOutput(j.ID, sandbox.OutputOptions{Tail: tail}); got != want {
			t.Errorf("the last %d lines are %q", tail, got)
		}
	}
	if _, rest := stamped(t, w.jobOutput(j.ID, sandbox.OutputOptions{Tail: 2, Timestamps: true})); rest != "two\nthree\n" {
		t.Errorf("the last lines with times are %q", rest)
	}
	err := w.engine.As(alice).JobOutput(t.Context(), j.ID, sandbox.Stdout, sandbox.OutputOptions{Tail: -1}, io.Discard)
	wantCode(t, err, fault.Invalid)
	err = w.engine.As(alice).JobOutput(t.Context(), j.ID, "stdlog", sandbox.OutputOptions{}, io.Discard)
	wantCode(t, err, fault.Invalid)
}

// Who follows beyond the cap gets the times of what is not kept, too.
func TestOutputTimesBeyondTheCap(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.OutputCap = 10 })
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	x, err := a.Execute(t.Context(), s.ID, sandbox.ExecRequest{Stdin: true, Command: []string{"sh", "-c", "read go; for i in 1 2 3 4 5 6; do echo line $i; done"}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	followed := make(chan error, 1)
	go func() {
		followed <- a.ExecutionOutput(t.Context(), x.ID, sandbox.Stdout, sandbox.OutputOptions{Follow: true, Timestamps: true}, &out)
	}()
	if err := a.WriteStdin(t.Context(), x.ID, strings.NewReader("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	times, rest := stamped(t, out.String())
	if rest != "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n" {
		t.Fatalf("followed %q", rest)
	}
	for i, at := range times {
		if at.Sub(times[0]).Abs() > time.Minute {
			t.Errorf("line %d came at %s, the first at %s", i, at, times[0])
		}
	}
	if kept := w.output(alice, x.ID, sandbox.Stdout); kept != "line 1\nlin" {
		t.Errorf("kept %q", kept)
	}
}

// 1 GB of output neither fills the disk nor the memory, and holds nobody up,
// although somebody follows and reads nothing.
func TestJobPrintsVeryMuch(t *testing.T) {
	const limit = 1 << 20
	w := newWorld(t, func(c *sandbox.Config) { c.OutputCap = limit })
	s := w.create(alice, sandbox.CreateRequest{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	j := w.job(s.ID, "head", "-c", strconv.Itoa(veryMuch), "/dev/zero")
	pr, pw := io.Pipe() // nobody reads
	go func() {
		_ = w.engine.As(alice).JobOutput(t.Context(), j.ID, sandbox.Stdout, sandbox.OutputOptions{Follow: true}, pw)
	}()
	start := time.Now()
	j = w.ended(j.ID)
	runtime.GC()
	runtime.ReadMemStats(&after)
	pr.Close()
	t.Logf("%d MiB in %s, memory of the process %d → %d MiB", veryMuch>>20, time.Since(start), before.Sys>>20, after.Sys>>20)
	if j.Status != sandbox.JobCompleted || j.StdoutBytes != limit || !j.OutputTruncated {
		t.Errorf("ended %+v", j)
	}
	if after.Sys > before.Sys+128<<20 {
		t.Errorf("memory grew from %d to %d bytes", before.Sys, after.Sys)
	}
	used := int64(0)
	err := filepath.WalkDir(filepath.Join(w.dir, "executions"), func(_ string, d os.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && !d.IsDir() {
			used += info.Size()
		}
		return err
	})
	if err != nil || used > limit+64<<10 {
		t.Errorf("%d bytes on the disk, %v", used, err)
	}
}

// A disk that is full costs output, not the command, nor its end.
func TestOutputOnAFullDisk(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=1m,mode=0700"); errors.Is(err, syscall.EPERM) {
		t.Skip("needs root to mount a small file system: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *sandbox.Config) { c.OutputDir = filepath.Join(small, "executions") })
	t.Cleanup(func() {
		// A process that is just being started holds all files for a moment.
		err := syscall.Unmount(small, 0)
		for limit := time.Now().Add(10 * time.Second); errors.Is(err, syscall.EBUSY) && time.Now().Before(limit); {
			runtime.Gosched()
			err = syscall.Unmount(small, 0)
		}
		if err != nil {
			t.Errorf("unmount: %v", err)
			_ = syscall.Unmount(small, syscall.MNT_DETACH)
		}
	})
	t.Cleanup(func() { w.engine.Close() })
	s := w.create(alice, sandbox.CreateRequest{})
	j := w.job(s.ID, "sh", "-c", "head -c 3000000 /dev/zero; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; head -c 3000000 /dev/zero; exit 4")
	for w.jobOutput(j.ID, sandbox.OutputOptions{}) == "" {
		runtime.Gosched()
	}
	w.restart()
	if err := w.engine.As(alice).WriteFile(t.Context(), s.ID, sandbox.File{Path: "go"}); err != nil {
		t.Fatal(err)
	}
	if j = w.ended(j.ID); *j.ExitCode != 4 || !j.OutputTruncated || j.StdoutBytes == 0 || j.StdoutBytes >= 1<<20 {
		t.Errorf("ended %+v", j)
	}
	// Output that cannot even begin to be kept is refused before anything runs.
	if err := os.WriteFile(filepath.Join(small, "ballast"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err := w.engine.As(alice).CreateJob(t.Context(), s.ID, sandbox.JobRequest{Command: []string{"touch", "ran"}})
	wantCode(t, err, fault.Exhausted)
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
}

// Old output goes, and the oldest of too much; the records stay.
func TestOutputRetention(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.OutputRetention, c.OutputPerSandbox = 24*time.Hour, 100_000 })
	s := w.create(alice, sandbox.CreateRequest{})
	sleeping := w.job(s.ID, "sh", "-c", "echo still here; sleep 1000")
	w.prints(sleeping.ID, "still here")
	old := w.ended(w.job(s.ID, "echo", "old").ID)
	x, _ := w.exec(alice, s.ID, "echo", "old")
	w.engine.TrimOutput(t.Context())
	if out := w.jobOutput(old.ID, sandbox.OutputOptions{}); out != "old\n" {
		t.Fatalf("removed before its time: %q", out)
	}
	w.now.advance(25 * time.Hour)
	w.engine.TrimOutput(t.Context())
	if out := w.jobOutput(old.ID, sandbox.OutputOptions{}) + w.output(alice, x.ID, sandbox.Stdout); out != "" {
		t.Errorf("still kept: %q", out)
	}
	if out := w.jobOutput(sleeping.ID, sandbox.OutputOptions{}); out != "still here\n" {
		t.Errorf("the output of a job that runs: %q", out)
	}
	if got := w.ended(old.ID); got.StdoutBytes != 4 || *got.ExitCode != 0 {
		t.Errorf("its record %+v", got)
	}
	w.now.advance(-25 * time.Hour)

	var jobs []sandbox.Job
	for range 5 { // 40 kB each
		jobs = append(jobs, w.ended(w.job(s.ID, "sh", "-c", "head -c 40000 /dev/zero").ID))
	}
	w.engine.TrimOutput(t.Context())
	kept := 0
	for _, j := range jobs {
		if w.jobOutput(j.ID, sandbox.OutputOptions{}) != "" {
			kept++
		} else if kept > 0 {
			t.Errorf("a newer one was removed before an older one")
		}
	}
	if kept != 2 {
		t.Errorf("%d of 5 are kept, want 2", kept)
	}
}
