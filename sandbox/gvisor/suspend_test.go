package gvisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// counter is a script that makes PID 1 start a process which counts in a file.
const counter = `p=$(cat /counter); grep -q job /proc/$p/cmdline && kill -9 $p
echo 'echo $$ >/counter; i=0; while :; do i=$((i+1)); echo $i >/count.new; mv /count.new /count; usleep 10000; done' >/job
kill -USR1 1
until [ -s /count ]; do usleep 1000; done`

func (r *rig) suspend(t testing.TB, id string) {
	t.Helper()
	begin := time.Now()
	if err := r.Suspend(t.Context(), id); err != nil {
		t.Fatal(cause(err))
	}
	t.Logf("suspend: %v", time.Since(begin))
	s, err := r.Inspect(t.Context(), id)
	if err != nil || s.State != driver.Stopped || !s.Memory || s.Exit.Reason != "suspended" {
		t.Fatalf("suspended, it is %+v, %v", s, err)
	}
}

func (r *rig) resume(t testing.TB, id string, memory bool) string {
	t.Helper()
	begin := time.Now()
	back, err := r.Resume(t.Context(), id)
	if err != nil {
		t.Fatal(cause(err))
	}
	t.Logf("resume: %v, %+v", time.Since(begin), back)
	if back.Memory != memory || (back.Reason == "") != memory {
		t.Fatalf("resumed with %+v, want memory %v", back, memory)
	}
	s, err := r.Inspect(t.Context(), id)
	if err != nil || s.State != driver.Running || s.Memory {
		t.Fatalf("resumed, it is %+v, %v", s, err)
	}
	if _, err := os.Stat(r.box(id).image()); err == nil {
		t.Error("the image is still there")
	}
	return back.Reason
}

func (r *rig) count(t testing.TB, id string) int {
	t.Helper()
	out, _ := r.sh(t, id, "cat /count")
	n, err := strconv.Atoi(out)
	must(t, err)
	return n
}

// moves wants the counter to go on.
func (r *rig) moves(t testing.TB, id string) {
	t.Helper()
	r.want(t, id, "was=$(cat /count); i=0; while [ $(cat /count) = $was -a $((i+=1)) -lt 2000 ]; do usleep 5000; done; [ $(cat /count) != $was ] && echo moves", "moves")
}

// TestSuspend suspends and resumes a sandbox again and again; a process that
// counts goes on where it was.
func TestSuspend(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s", func(s *driver.Spec) {
		if r.host().memory.OK {
			s.Limits.MemoryBytes = 256 << 20
		}
		s.Limits.Processes = 100
	})
	script := counter + "\nexec 3>/deleted; rm /deleted; echo written; mkdir -p /a/b; echo x >/a/b/c; ln -s b /a/l; chown 12:34 /a/b/c"
	r.sh(t, "s", script)
	for range 3 {
		r.suspend(t, "s")
		at := r.box("s").dir
		before := ""
		if r.host().storage == hostOverlay {
			b, err := os.ReadFile(filepath.Join(at, "data", "upper", "count"))
			must(t, err)
			before = strings.TrimSpace(string(b))
		}
		r.resume(t, "s", true)
		r.want(t, "s", "cat /a/l/c; stat -c %u:%g /a/b/c; hostname", "x\n12:34\ns")
		if before != "" {
			n, err := strconv.Atoi(before)
			must(t, err)
			if now := r.count(t, "s"); now < n {
				t.Errorf("it counted to %d and is at %d now", n, now)
			}
		}
		r.moves(t, "s")
	}
}

// TestSuspendedJob is the way of the product: a job of the guest and a shell
// with a terminal, both attached to anew.
func TestSuspendedJob(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s", func(s *driver.Spec) { s.Guest = driver.Guest{Path: drivertest.BuildGuest(t)} })
	connect := func() *guest.Conn {
		stream, err := r.Dial(t.Context(), "s")
		must(t, err)
		c, err := guest.Connect(t.Context(), stream)
		must(t, err)
		return c
	}
	c := connect()
	job := guest.Command{ID: "job", NoStdin: true, Args: []string{"/bin/sh", "-c", "i=0; while :; do echo $((i=i+1)); usleep 10000; done"}}
	lines := newLines()
	p, err := c.Start(t.Context(), job, guest.Output{Stdout: lines})
	must(t, err)
	shell := newLines()
	sh, err := c.Start(t.Context(), guest.Command{ID: "sh", Args: []string{"/bin/sh"}, TTY: &guest.TTY{Size: guest.Size{Rows: 24, Cols: 80}}}, guest.Output{Stdout: shell})
	must(t, err)
	_, err = sh.Write([]byte("x=kept\n"))
	must(t, err)
	lines.waitFor(t, "5")
	for round := range 3 {
		must(t, c.Close())
		for _, proc := range []*guest.Process{p, sh} { // nothing is printed any more once they are lost
			if _, err := proc.Wait(t.Context()); !errors.Is(err, guest.ErrLost) {
				t.Fatalf("wait on a closed connection: %v", err)
			}
		}
		offset, shellAt := p.Offset(), sh.Offset()
		r.suspend(t, "s")
		r.resume(t, "s", true)
		begin := time.Now()
		c = connect()
		p, err = c.Attach(t.Context(), "job", offset, guest.Output{Stdout: lines})
		must(t, err)
		t.Logf("dial and attach: %v", time.Since(begin))
		sh, err = c.Attach(t.Context(), "sh", shellAt, guest.Output{Stdout: shell})
		must(t, err)
		_, err = sh.Write([]byte("echo x is $x " + strconv.Itoa(round) + "\n"))
		must(t, err)
		shell.waitFor(t, "x is kept "+strconv.Itoa(round))
		lines.waitFor(t, strconv.Itoa(10*(round+1)))
	}
	lines.gapless(t)
	must(t, c.Close())
}

// TestSuspendedThenOtherwise ends the wait of a suspended sandbox in every
// other way, each of which discards the image.
func TestSuspendedThenOtherwise(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s")
	gone := func() {
		t.Helper()
		s, err := r.Inspect(t.Context(), "s")
		if err != nil || s.Memory {
			t.Errorf("%+v, %v", s, err)
		}
		if _, err := os.Stat(r.box("s").image()); err == nil {
			t.Error("the image is still there")
		}
	}
	r.sh(t, "s", "echo kept >/kept; echo lost >/dev/shm/lost")
	r.suspend(t, "s")
	if err := r.Suspend(t.Context(), "s"); !fault.Is(err, fault.State) {
		t.Errorf("suspended twice: %v", err)
	}
	if _, err := r.Dial(t.Context(), "s"); !fault.Is(err, fault.State) {
		t.Errorf("dialled while suspended: %v", err)
	}
	must(t, r.Start(t.Context(), "s"))
	gone()
	r.want(t, "s", "cat /kept; ls /dev/shm", "kept")
	r.suspend(t, "s")
	r.stop(t, "s", 0)
	gone()
	if s, err := r.Inspect(t.Context(), "s"); err != nil || s.Exit.Reason != "stopped" {
		t.Errorf("%+v, %v", s, err)
	}
	if reason := r.resume(t, "s", false); !strings.Contains(reason, "stopped") {
		t.Errorf("reason %q", reason)
	}
	r.suspend(t, "s")
	must(t, r.Remove(t.Context(), "s"))
	if err := r.Suspend(t.Context(), "s"); !fault.Is(err, fault.NotFound) {
		t.Errorf("suspended what is removed: %v", err)
	}
	if _, err := r.Resume(t.Context(), "s"); !fault.Is(err, fault.NotFound) {
		t.Errorf("resumed what is removed: %v", err)
	}
}

// TestSuspendFails wants a sandbox that could not be suspended to run on as it
// did.
func TestSuspendFails(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s")
	r.sh(t, "s", counter)
	r.guestMoves(t)
	err := r.Suspend(t.Context(), "s")
	if err == nil {
		t.Fatal("suspended without a guest program to look at")
	}
	t.Log(cause(err))
	r.guestMoves(t)
	r.moves(t, "s")
	r.suspend(t, "s")
	r.resume(t, "s", true)
	// A context that ends in the middle leaves one or the other.
	for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err := r.Suspend(ctx, "s")
		cancel()
		s, inspectErr := r.Inspect(t.Context(), "s")
		must(t, inspectErr)
		t.Logf("%v: %v, %+v", after, err, s)
		if (err == nil) != s.Memory {
			t.Errorf("error %v, but %+v", err, s)
		}
		_, err = r.Resume(t.Context(), "s")
		must(t, err)
		if s.Memory {
			r.moves(t, "s")
		} else {
			r.want(t, "s", "echo alive", "alive")
		}
	}
}

// guestMoves takes the guest program away, or brings it back.
func (r *rig) guestMoves(t *testing.T) {
	t.Helper()
	away := r.guest + ".away"
	if _, err := os.Stat(away); err == nil {
		must(t, os.Rename(away, r.guest))
		return
	}
	must(t, os.Rename(r.guest, away))
}

// TestLostHold finds sandboxes as a server leaves them that is killed while it
// holds them still, and a moment before and after.
func TestLostHold(t *testing.T) {
	r := newRig(t)
	r.boot(t, "s")
	r.sh(t, "s", counter)
	b := r.box("s")
	for range 20 { // whatever its tasks do
		if still, err := r.isStill(t.Context(), "s"); err != nil || still {
			t.Fatalf("nobody holds it: %v, %v", still, err)
		}
		must(t, r.still(t.Context(), b, func() error {
			if still, err := r.isStill(t.Context(), "s"); err != nil || !still {
				t.Errorf("it is held: %v, %v", still, err)
			}
			return nil
		}))
	}
	for name, crash := range map[string]func(){
		"held": func() {
			_, err := r.hold(t.Context(), b)
			must(t, err)
		},
		"before it is held":   func() { must(t, os.WriteFile(b.held(), nil, 0o600)) },
		"after it was let go": func() { must(t, os.WriteFile(b.held(), nil, 0o600)) },
	} {
		crash()
		must(t, r.Driver.Close())
		r.Driver = r.reopen(t)
		begin := time.Now()
		r.moves(t, "s")
		t.Logf("%s: goes on after %v", name, time.Since(begin))
		if b.isHeld() {
			t.Errorf("%s: it is still said to be held", name)
		}
	}
	_, err := r.hold(t.Context(), b)
	must(t, err)
	r.stop(t, "s", 0)
	must(t, r.Start(t.Context(), "s"))
	r.want(t, "s", "echo alive", "alive")
}

// lines is output that can be waited for.
type lines struct {
	text    chan []byte
	changed chan struct{}
}

func newLines() *lines {
	l := &lines{text: make(chan []byte, 1), changed: make(chan struct{}, 1)}
	l.text <- nil
	return l
}

func (l *lines) Write(b []byte) (int, error) {
	l.text <- append(<-l.text, b...)
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return len(b), nil
}

// waitFor waits for a whole line.
func (l *lines) waitFor(t *testing.T, line string) {
	t.Helper()
	for {
		text := <-l.text
		l.text <- text
		if bytes.Contains(append([]byte("\n"), bytes.ReplaceAll(text, []byte("\r"), nil)...), []byte("\n"+line+"\n")) {
			return
		}
		select {
		case <-l.changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("no line %q in %q", line, text)
		}
	}
}

// gapless wants the whole lines to be numbers that count up from 1.
func (l *lines) gapless(t *testing.T) {
	t.Helper()
	text := <-l.text
	l.text <- text
	all := strings.Split(string(text), "\n")
	for i, line := range all[:len(all)-1] {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}
