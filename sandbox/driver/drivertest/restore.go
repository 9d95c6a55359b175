package drivertest

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func restoreTests() []test {
	all := []test{
		{name: "Restore/Files", run: testRestoreFiles},
		{name: "Restore/SystemFiles", walls: true, run: testRestoreSystemFiles},
		{name: "Restore/OverSaved", run: testRestoreOverSaved},
		{name: "Restore/Refusals", run: testRestoreRefusals},
		{name: "Restore/OldOrNew", run: testRestoreOldOrNew},
	}
	for i := range all {
		all[i].needs = driver.FeatureSave
	}
	return all
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%q is no number", s)
	}
	return n
}

// restore brings a stopped sandbox back to a saved layer.
func (b *box) restore(t *testing.T, dir string) {
	t.Helper()
	if err := b.saver(t).Restore(ctx(t), b.id, dir); err != nil {
		t.Fatalf("restore %s: %s", b.id, causes(err))
	}
}

func testRestoreFiles(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "echo old >f; echo old >gone; mkdir d; echo old >d/x")
	dir := b.save(t)
	for range 2 {
		b.sh(t, "echo new >f; echo new >g; rm -rf gone d")
		b.stop(t, 0)
		b.restore(t, dir)
		if s := e.wantState(t, b.id, driver.Stopped, driver.Created); s.Memory {
			t.Error("restored, and with a memory image")
		}
		b.start(t)
		if got := b.sh(t, "cat f gone d/x; ls"); got != "old\nold\nold\nd\nf\ngone" {
			t.Errorf("restored: %q", got)
		}
	}
	// The saved layer has stayed what it was, and may go.
	b.sh(t, "echo changed >f")
	if got := e.boot(t, from(dir)).sh(t, "cat f"); got != "old" {
		t.Errorf("the layer has %q", got)
	}
	// So does a sandbox that was never started.
	created := &box{env: e, id: e.create(t)}
	created.restore(t, dir)
	created.start(t)
	if got := created.sh(t, "cat f"); got != "old" {
		t.Errorf("restored before its first start: %q", got)
	}
}

func testRestoreSystemFiles(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "rm /bin/true; echo 1 >/etc/issue; chown 9:9 /etc/issue")
	dir := b.save(t)
	b.sh(t, "echo back >/bin/true; rm /etc/issue; rm -r /home")
	b.stop(t, graces[0])
	b.restore(t, dir)
	b.start(t)
	if got := b.sh(t, "cat /etc/issue; stat -c %u /etc/issue; ls -d /home; ls /bin/true 2>/dev/null; true"); got != "1\n9\n/home" {
		t.Errorf("got %q", got)
	}
	b.ping(t)
}

func testRestoreOverSaved(t *testing.T, e *env) {
	a := e.boot(t)
	a.sh(t, "echo 1 >low; echo 1 >both")
	one := a.save(t)
	b := e.boot(t, from(one))
	b.sh(t, "echo 2 >both; echo 2 >high")
	two := b.save(t)
	b.sh(t, "echo 3 >both; rm low high")
	b.stop(t, 0)
	b.restore(t, two)
	b.start(t)
	if got := b.sh(t, "cat low both high"); got != "1\n2\n2" {
		t.Errorf("got %q", got)
	}
}

func testRestoreRefusals(t *testing.T, e *env) {
	s := e.saver(t)
	b := e.boot(t)
	b.sh(t, "echo old >f")
	dir := b.save(t)
	b.sh(t, "echo new >f")
	wantCode(t, s.Restore(ctx(t), newID(), dir), fault.NotFound)
	wantCode(t, s.Restore(ctx(t), b.id, dir), fault.State)
	b.ping(t)
	b.stop(t, 0)
	for _, wrong := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		wantCode(t, s.Restore(ctx(t), b.id, wrong), fault.Invalid)
	}
	done, cancel := context.WithCancel(ctx(t))
	cancel()
	wantCode(t, s.Restore(done, b.id, dir), fault.Cancelled)
	b.start(t)
	if got := b.sh(t, "cat f"); got != "new" {
		t.Errorf("after the refusals: %q", got)
	}
}

// testRestoreOldOrNew gives a restore less and less time: whenever it gives
// up, the files are the old ones or the saved ones, and nothing in between.
func testRestoreOldOrNew(t *testing.T, e *env) {
	b := e.boot(t)
	fill := func(word string) string {
		return "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo " + word + " >f$i; done; head -c 2000000 /dev/urandom >big; echo " + word + " >>big"
	}
	b.sh(t, fill("old"))
	dir := b.save(t)
	for _, patience := range []time.Duration{time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, patience} {
		b.sh(t, fill("new"))
		b.stop(t, 0)
		c, cancel := context.WithTimeout(ctx(t), patience)
		err := b.saver(t).Restore(c, b.id, dir)
		cancel()
		want := "old"
		if err != nil {
			wantCode(t, err, fault.Timeout)
			want = "new"
		}
		b.start(t)
		got := b.sh(t, "ls | wc -l; (cat f*; tail -n 1 big) | grep -ao '...$' | sort -u")
		if lines := strings.Fields(got); len(lines) != 2 || lines[0] != "201" || lines[1] != want {
			t.Errorf("within %v (%v): %q, want %s", patience, err, lines, want)
		}
	}
}
