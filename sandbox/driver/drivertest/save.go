package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func saveTests() []test {
	all := []test{
		{name: "Save/Running", run: testSaveRunning},
		{name: "Save/Stopped", run: testSaveStopped},
		{name: "Save/NeverStarted", run: testSaveCreated},
		{name: "Save/Content", run: testSaveContent},
		{name: "Save/SystemContent", walls: true, run: testSaveSystemContent},
		{name: "Save/Stack", run: testSaveStack},
		{name: "Save/Shared", run: testSaveShared},
		{name: "Save/OfOneMoment", run: testSaveOfOneMoment},
		{name: "Save/Refusals", run: testSaveRefusals},
		{name: "Save/Cancelled", run: testSaveCancelled},
		{name: "Save/FullDisk", run: testSaveFullDisk},
		{name: "Save/OverRestart", run: testSaveOverRestart},
		{name: "Save/Discard", run: testDiscard},
		{name: "Save/NoSavedLayer", run: testNoSavedLayer},
	}
	for i := range all {
		all[i].needs = driver.FeatureSave
	}
	return all
}

// saver is the capability, which a driver that reports the feature has.
func (e *env) saver(t *testing.T) driver.Saver {
	t.Helper()
	s, ok := e.d.(driver.Saver)
	if !ok {
		t.Fatalf("%s reports %q and is no driver.Saver", e.d.Name(), driver.FeatureSave)
	}
	return s
}

// layerDir names a saved layer that does not exist yet. It is discarded at the
// end of the test, after what was made from it later.
func (e *env) layerDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(e.scratch, "saved-"+newID())
	t.Cleanup(func() {
		if err := e.saver(t).Discard(context.Background(), dir); err != nil {
			t.Errorf("discard: %s", causes(err))
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a discarded layer is still there: %v", err)
		}
	})
	return dir
}

// save keeps the files of a sandbox.
func (b *box) save(t *testing.T) string {
	t.Helper()
	dir := b.layerDir(t)
	if err := b.saver(t).Save(ctx(t), b.id, dir); err != nil {
		t.Fatalf("save %s: %s", b.id, causes(err))
	}
	return dir
}

// from returns a change that puts saved layers over the harness's.
func from(saved ...string) func(*driver.Spec) {
	return func(s *driver.Spec) { s.Rootfs.Saved = saved }
}

func testSaveRunning(t *testing.T, e *env) {
	b := e.boot(t)
	p, _ := b.background(t, "echo ready; read x; exit 7")
	b.sh(t, "echo one >f")
	dir := b.save(t)
	b.sh(t, "echo two >f; echo later >g")
	if _, err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx(t)); err != nil || exit.Code != 7 {
		t.Errorf("a process of the saved sandbox ended with %+v, %v", exit, err)
	}
	again := e.boot(t, from(dir))
	if got := again.sh(t, "cat f; ls"); got != "one\nf" {
		t.Errorf("from the saved layer: %q", got)
	}
}

func testSaveStopped(t *testing.T, e *env) {
	for _, grace := range graces {
		b := e.boot(t)
		b.sh(t, "mkdir d && echo one >d/f")
		b.stop(t, grace)
		dir := b.save(t)
		e.wantState(t, b.id, driver.Stopped)
		if got := e.boot(t, from(dir)).sh(t, "cat d/f"); got != "one" {
			t.Errorf("after a stop with grace %v: %q", grace, got)
		}
		// The sandbox has lost nothing.
		b.start(t)
		if got := b.sh(t, "cat d/f"); got != "one" {
			t.Errorf("the saved sandbox has %q", got)
		}
	}
}

func testSaveCreated(t *testing.T, e *env) {
	b := &box{env: e, id: e.create(t)}
	dir := b.save(t)
	e.wantState(t, b.id, driver.Created)
	e.boot(t, from(dir)).sh(t, "echo x >f")
}

// content makes all kinds of files that a driver keeps in the folder it is run
// in; seen tells what is there.
const (
	content = `set -e
mkdir -p d/deep closed sticky; echo file >d/deep/f; chmod 640 d/deep/f; echo x >run; chmod 4755 run; chmod 1777 sticky; chmod 700 closed
: >empty; ln -s ../../up soft; ln -s /nowhere dangling; echo linked >one; ln one two; ln one d/three
echo a >'ünï côdé 日本'; echo b >'new
line'; echo c >"$(printf '\377\376')"; echo d >-dash; echo e >'*'; echo f >' '; echo g >'back\slash'
head -c 3000000 /dev/zero | tr '\0' x >big; touch -d '2001-02-03 04:05:06' d/deep/f d
i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i >d/many$i; done; touch -d '2001-02-03 04:05:06' d`
	seen = `stat -c '%a %s' d/deep/f run empty big; stat -c %a sticky d closed; cat d/deep/f; readlink soft; readlink dangling
[ one -ef two ] && [ one -ef d/three ] && echo linked; cat 'ünï côdé 日本' 'new
line' "$(printf '\377\376')" ./-dash ./'*' ' ' 'back\slash'; stat -c %Y d/deep/f d; md5sum <big; cat d/many1 d/many100; ls d | wc -l`
)

func testSaveContent(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "umask 022; mkdir c; cd c; "+content)
	want := b.sh(t, "cd c; "+seen)
	for _, name := range []string{"running", "stopped"} {
		if name == "stopped" {
			b.stop(t, graces[0])
		}
		again := e.boot(t, from(b.save(t)))
		if got := again.sh(t, "cd c; "+seen); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// testSaveSystemContent is about files that the layers below have, and about
// owners, which only walls let one choose.
func testSaveSystemContent(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, `echo changed >/etc/issue; rm /bin/true; rm -r /home; mkdir /home; echo new >/home/f; chown 1000:1000 /home/f; chown -h 5:6 /home
		mkdir /opt; echo o >/opt/f; chmod 700 /opt; mv /etc/group /etc/group.old; chmod 711 /usr; ln /etc/issue /issue; ln -s x /l; chown -h 7:8 /l`)
	const look = `cat /etc/issue /opt/f /home/f; ls /home; ls /bin/true /etc/group 2>/dev/null; head -n 1 /etc/group.old
		stat -c '%n %u:%g %a' /home /home/f /opt /usr /l; [ /issue -ef /etc/issue ] && echo same; stat -c %a /etc/shadow`
	want := b.sh(t, look)
	if !strings.HasPrefix(want, "changed\no\nnew\nf\nroot:x:0:\n/home 5:6 755\n/home/f 1000:1000 644\n") {
		t.Fatalf("the sandbox itself sees %q", want)
	}
	dir := b.save(t)
	b.sh(t, "echo again >/etc/issue; rm /home/f")
	again := e.boot(t, from(dir))
	if got := again.sh(t, look); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// What was deleted can be made anew, and deleted again.
	again.sh(t, "mkdir /home/user; echo x >/bin/true; rm -r /opt")
	third := e.boot(t, from(again.save(t), dir))
	if got := third.sh(t, "cat /etc/issue /bin/true; ls /home; ls -d /opt 2>/dev/null; ls -A /home/user"); got != "changed\nx\nf\nuser" {
		t.Errorf("from both layers: %q", got)
	}
}

func testSaveStack(t *testing.T, e *env) {
	a := e.boot(t)
	a.sh(t, "echo 1 >low; echo 1 >both; echo 1 >gone; mkdir -p d emptied merged; echo 1 >d/x; echo 1 >emptied/x; echo 1 >merged/low; echo 1 >turned")
	one := a.save(t)
	b := e.boot(t, from(one))
	b.sh(t, "echo 2 >both; echo 2 >high; rm -r gone d; rm -r emptied; mkdir emptied; echo 2 >emptied/y; echo 2 >merged/high; rm turned; mkdir turned; echo 2 >turned/z")
	const look = "find . -type f | sort | while read f; do echo $f $(cat $f); done"
	want := "./both 2\n./emptied/y 2\n./high 2\n./low 1\n./merged/high 2\n./merged/low 1\n./turned/z 2"
	two := b.save(t)
	c := e.boot(t, from(two, one))
	if got := c.sh(t, look); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// And over a stop, and as the start of another.
	c.stop(t, 0)
	c.start(t)
	c.sh(t, "rm low; echo 3 >both")
	third := e.boot(t, from(c.save(t), two, one))
	want = strings.Replace(strings.Replace(want, "./low 1\n", "", 1), "both 2", "both 3", 1)
	if got := third.sh(t, look); got != want {
		t.Errorf("three layers: got %q, want %q", got, want)
	}
}

// testSaveShared holds that sandboxes from one layer do not see each other,
// and that the layer stays what it was.
func testSaveShared(t *testing.T, e *env) {
	a := e.boot(t)
	a.sh(t, "echo one >f; echo one >g")
	dir := a.save(t)
	b, c := e.boot(t, from(dir)), e.boot(t, from(dir))
	b.sh(t, "echo b >f; rm g; echo b >new")
	if got := c.sh(t, "cat f g; ls"); got != "one\none\nf\ng" {
		t.Errorf("the neighbour sees %q", got)
	}
	e.remove(t, a.id)
	e.remove(t, b.id)
	if got := e.boot(t, from(dir)).sh(t, "cat f g; ls"); got != "one\none\nf\ng" {
		t.Errorf("a later sandbox sees %q", got)
	}
}

// testSaveOfOneMoment saves while files change in a known order: what was
// written last may be missing, but never what came before it.
func testSaveOfOneMoment(t *testing.T, e *env) {
	b := e.boot(t)
	b.background(t, `i=0; while :; do i=$((i+1)); for f in z a m; do echo $i >.new; mv .new $f; [ $i.$f = 2.z ] && echo ready; done; done`)
	for range 3 {
		got := strings.Fields(e.boot(t, from(b.save(t))).sh(t, "cat z a m"))
		if len(got) != 3 {
			t.Fatalf("the saved files are %q", got)
		}
		z, a, m := number(t, got[0]), number(t, got[1]), number(t, got[2])
		if z < a || a < m || m < z-1 {
			t.Errorf("the files are of different moments: %d, %d, %d", z, a, m)
		}
	}
}

func testSaveRefusals(t *testing.T, e *env) {
	s := e.saver(t)
	dir := e.layerDir(t)
	wantCode(t, s.Save(ctx(t), newID(), dir), fault.NotFound)
	b := e.boot(t)
	b.sh(t, "echo x >f")
	wantAbsent(t, dir)

	there := t.TempDir()
	if err := os.WriteFile(filepath.Join(there, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Save(ctx(t), b.id, there), fault.Exists)
	if left, err := os.ReadDir(there); err != nil || len(left) != 1 {
		t.Errorf("what was there is now %v, %v", left, err)
	}
	saved := b.save(t)
	wantCode(t, s.Save(ctx(t), b.id, saved), fault.Exists)
	if err := s.Save(ctx(t), b.id, filepath.Join(dir, "no", "parent")); err == nil {
		t.Error("a layer was saved in a folder that does not exist")
	}
	wantAbsent(t, dir)
	if got := e.boot(t, from(saved)).sh(t, "cat f"); got != "x" {
		t.Errorf("after the refusals the layer has %q", got)
	}
	if e.h.Damage != nil {
		b.stop(t, 0)
		e.h.Damage(t, e.state, b.id)
		wantCode(t, s.Save(ctx(t), b.id, dir), fault.State)
		wantAbsent(t, dir)
	}
}

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something of %s is left: %v", filepath.Base(path), err)
	}
}

func testSaveCancelled(t *testing.T, e *env) {
	b := e.boot(t)
	c, cancel := context.WithCancel(ctx(t))
	cancel()
	dir := e.layerDir(t)
	wantCode(t, e.saver(t).Save(c, b.id, dir), fault.Cancelled)
	wantAbsent(t, dir)
	b.sh(t, "echo goes on >f")
}

func testSaveFullDisk(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "head -c 8000000 /dev/urandom >f")
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	defer func() {
		// Detached: somebody who is just being forked may hold a file of it.
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	wantCode(t, e.saver(t).Save(ctx(t), b.id, filepath.Join(disk, "saved")), fault.Exhausted)
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("left on the full disk: %v, %v", left, err)
	}
	b.sh(t, "echo goes on >g")
}

func testSaveOverRestart(t *testing.T, shared *env) {
	e := newEnv(t, shared.h)
	b := e.boot(t)
	b.sh(t, "echo kept >f")
	dir := b.save(t)
	made := e.create(t, from(dir))
	e.restart(t)
	again := &box{env: e, id: made}
	again.start(t)
	if got := again.sh(t, "cat f"); got != "kept" {
		t.Errorf("a sandbox made before the restart has %q", got)
	}
	if got := e.boot(t, from(dir)).sh(t, "cat f"); got != "kept" {
		t.Errorf("a sandbox made after the restart has %q", got)
	}
}

func testDiscard(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "echo x >f")
	dir := b.save(t)
	made := e.boot(t, from(dir))
	e.remove(t, made.id)
	for range 2 {
		if err := e.saver(t).Discard(ctx(t), dir); err != nil {
			t.Errorf("discard: %s", causes(err))
		}
		wantAbsent(t, dir)
	}
	b.sh(t, "cat f")
}

// testNoSavedLayer holds that a directory that no driver has filled passes for
// no layer.
func testNoSavedLayer(t *testing.T, e *env) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"missing": filepath.Join(foreign, "none"), "empty": t.TempDir(), "foreign": foreign, "relative": "saved"} {
		s := e.spec()
		s.Rootfs.Saved = []string{dir}
		err := e.d.Create(ctx(t), s)
		if err == nil {
			e.remove(t, s.ID)
		}
		t.Log(name)
		wantCode(t, err, fault.Invalid)
		e.noTrace(t, s.ID)
	}
}
