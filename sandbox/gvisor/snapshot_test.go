package gvisor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// saves is a folder for saved layers.
func (r *rig) saves(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(r.guest), "saved")
	must(t, os.MkdirAll(dir, 0o700))
	return dir
}

// save saves and returns the directory.
func (r *rig) save(t testing.TB, id, name string) string {
	t.Helper()
	dir := filepath.Join(r.saves(t), name)
	begin := time.Now()
	if err := r.Save(t.Context(), id, dir); err != nil {
		t.Fatal(cause(err))
	}
	t.Logf("save %s: %v", name, time.Since(begin))
	if left, err := filepath.Glob(dir + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return dir
}

// names lists what an export has in it.
func (r *rig) names(t testing.TB, dir string) []string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Export(t.Context(), dir, &out); err != nil {
		t.Fatal(cause(err))
	}
	var again bytes.Buffer
	must(t, r.Export(t.Context(), dir, &again))
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two exports differ")
	}
	var names []string
	for tr := tar.NewReader(&out); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return names
		}
		must(t, err)
		names = append(names, h.Name)
	}
}

// variants runs f with and without a disk of the sandbox's own.
func (r *rig) variants(t *testing.T, f func(t *testing.T, id string, change func(*driver.Spec))) {
	f(t, "plain", func(*driver.Spec) {})
	if r.host().disk.OK {
		f(t, "disk", func(s *driver.Spec) { s.Limits.DiskBytes = 64 << 20 })
	}
}

const (
	fill = `mkdir -p /d/e; echo one >/d/e/f; chown 12:34 /d/e/f; chmod 4751 /d/e/f; touch -h -d '2001-02-03 04:05:06' /d/e/f
ln -s e /d/l; ln /d/e/f /d/hard; rm /bin/vi; rm -r /root; mkdir /root; echo x >/root/x; printf 'now' >/d/now`
	filled = `cd /d; stat -c '%n %F %u:%g %a %h %Y' e/f l hard; cat e/f now; ls -d /bin/vi /root/.* 2>&1; ls -A /root`
	looks  = "e/f regular file 12:34 4751 2 981173106\nl symbolic link 0:0 777 1 %\nhard regular file 12:34 4751 2 981173106\none\nnow"
)

func (r *rig) wantFilled(t testing.TB, id string) {
	t.Helper()
	out, _ := r.sh(t, id, filled)
	for part := range strings.SplitSeq(looks, "%") {
		if !strings.Contains(out, part) {
			t.Errorf("%s has %q, want %q in it", id, out, part)
		}
	}
	if !strings.Contains(out, "/bin/vi: No such file") || !strings.HasSuffix(out, "\nx") {
		t.Errorf("%s: %q", id, out)
	}
}

// TestSave saves a running sandbox the moment it has written, and starts
// others from that.
func TestSave(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureSave)
	r.variants(t, func(t *testing.T, id string, change func(*driver.Spec)) {
		r.boot(t, id, change)
		r.sh(t, id, fill)
		one := r.save(t, id, id+"-one")
		r.sh(t, id, "echo more >>/d/now; rm /d/l; echo two >/two")
		r.wantFilledIn(t, id+"-child", change, one)
		// A grandchild: what its parent wrote over, and deleted of, its own.
		r.sh(t, id+"-child", "rm /d/l /d/hard; rm -r /root; echo second >/d/now; mkdir /new; touch -d '2001-02-03 04:05:06' /bin/busybox; chmod 700 /d/e")
		two := r.save(t, id+"-child", id+"-two")
		r.boot(t, id+"-grandchild", change, func(s *driver.Spec) { s.Rootfs.Saved = []string{two, one} })
		const tree = "cd /d; find . | sort; cat now e/f; ls -d /new /root; stat -c '%a %Y' e /bin/busybox | head -1"
		want, _ := r.sh(t, id+"-child", tree)
		r.want(t, id+"-grandchild", tree, want)
		if strings.Contains(want, "./l") || !strings.Contains(want, "second") {
			t.Errorf("the child shows %q", want)
		}
		// Stopped, suspended or never run: the same.
		r.stop(t, id+"-grandchild", time.Second)
		three := r.save(t, id+"-grandchild", id+"-three")
		must(t, r.Create(t.Context(), func() driver.Spec {
			s := r.spec(id + "-last")
			change(&s)
			s.Rootfs.Saved = []string{three, two, one}
			return s
		}()))
		four := r.save(t, id+"-last", id+"-four")
		if r.host().storage == hostOverlay {
			if names := r.names(t, four); len(names) != 1 {
				t.Errorf("a sandbox that never ran has %q", names)
			}
		}
		must(t, r.Start(t.Context(), id+"-last"))
		r.want(t, id+"-last", tree, want)
		for _, dir := range []string{one, two, three, four} {
			must(t, r.Discard(t.Context(), dir))
			must(t, r.Discard(t.Context(), dir))
		}
	})
	if left, err := os.ReadDir(r.saves(t)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func (r *rig) wantFilledIn(t testing.TB, id string, change func(*driver.Spec), saved ...string) {
	t.Helper()
	r.boot(t, id, change, func(s *driver.Spec) { s.Rootfs.Saved = saved })
	r.wantFilled(t, id)
	r.want(t, id, "ls /two 2>&1", "ls: /two: No such file or directory")
}

// TestSaveHoldsStill saves while two files are written in turn: in a saved
// layer the second is at most one behind the first.
func TestSaveHoldsStill(t *testing.T) {
	r := newRig(t)
	r.boot(t, "s")
	r.sh(t, "s", `echo 'i=0; while :; do i=$((i+1)); for f in a count; do echo $i >/$f.new; mv /$f.new /$f; done; done' >/job
echo 0 >/a; echo 0 >/count; kill -USR1 1`)
	for n := range 5 {
		dir := r.save(t, "s", "s")
		id := string(rune('a' + n))
		r.boot(t, id, func(s *driver.Spec) { s.Rootfs.Saved = []string{dir} })
		r.want(t, id, "d=$(($(cat /a)-$(cat /count))); [ $d = 0 -o $d = 1 ] && echo one moment", "one moment")
		must(t, r.Remove(t.Context(), id))
		must(t, r.Discard(t.Context(), dir))
		r.moves(t, "s")
	}
}

// TestExport holds that an export has what the sandbox changed and nothing
// that the driver put there, and makes the same sandbox again.
func TestExport(t *testing.T) {
	r := newRig(t)
	source := t.TempDir()
	must(t, os.Chmod(source, 0o755))
	must(t, os.WriteFile(filepath.Join(source, "theirs"), nil, 0o644))
	dirs := func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{{Source: source, Target: "/mnt/shown"}, {Source: "/usr", Target: "/usr"}}
	}
	r.boot(t, "untouched", dirs)
	if names := r.names(t, r.save(t, "untouched", "untouched")); len(names) > 1 || len(names) == 1 && names[0] != "./" {
		t.Errorf("an untouched sandbox has %q", names)
	}
	r.boot(t, "s", dirs)
	r.sh(t, "s", fill+"; rm /mnt/shown/theirs; echo y >/usr/y; echo t >/tmp/t")
	dir := r.save(t, "s", "s")
	names := r.names(t, dir)
	for _, want := range []string{"d/e/f", "d/l", "d/hard", "bin/.wh.vi", "mnt/shown/.wh.theirs", "usr/y", "tmp/t", "root/x"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	for _, name := range names {
		if strings.Contains(name, ".keep") || strings.Contains(name, "sandgate") || strings.HasPrefix(name, "etc") {
			t.Errorf("%s in %q", name, names)
		}
	}
	var out bytes.Buffer
	must(t, r.Export(t.Context(), dir, &out))
	was := bytes.Clone(out.Bytes())
	back := filepath.Join(r.saves(t), "back")
	if err := r.Import(t.Context(), back, &out, 1<<20); err != nil {
		t.Fatal(cause(err))
	}
	var again bytes.Buffer
	must(t, r.Export(t.Context(), back, &again))
	if !bytes.Equal(was, again.Bytes()) {
		t.Error("exported, imported and exported, it is another")
	}
	r.wantFilledIn(t, "child", dirs, back)
	r.want(t, "child", "ls /mnt/shown; cat /usr/y /tmp/t", "y\nt")

	if err := r.Import(t.Context(), back, bytes.NewReader(was), 0); !fault.Is(err, fault.Exists) {
		t.Errorf("import over another: %v", err)
	}
	if err := r.Import(t.Context(), back+"2", bytes.NewReader(was), 2); !fault.Is(err, fault.Exhausted) {
		t.Errorf("import of more than the limit: %v", err)
	}
	if err := r.Import(t.Context(), back+"3", bytes.NewReader(was[:2000]), 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("import of a part: %v", err)
	}
	if err := r.Export(t.Context(), source, io.Discard); !fault.Is(err, fault.Invalid) {
		t.Errorf("export of what is no layer: %v", err)
	}
	if list, err := os.ReadDir(r.saves(t)); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestRestore goes back to what was saved.
func TestRestore(t *testing.T) {
	r := newRig(t)
	r.variants(t, func(t *testing.T, id string, change func(*driver.Spec)) {
		r.boot(t, id, change)
		r.sh(t, id, fill)
		dir := r.save(t, id, id)
		r.sh(t, id, "rm -r /d; echo after >/after; echo vi >/bin/vi; echo y >/root/y")
		if err := r.Restore(t.Context(), id, dir); !fault.Is(err, fault.State) {
			t.Errorf("restored while it runs: %v", err)
		}
		r.suspend(t, id)
		if err := r.Restore(t.Context(), id, r.layer); !fault.Is(err, fault.Invalid) {
			t.Errorf("restored from a directory: %v", err)
		}
		begin := time.Now()
		if err := r.Restore(t.Context(), id, dir); err != nil {
			t.Fatal(cause(err))
		}
		t.Logf("restore: %v", time.Since(begin))
		if s, err := r.Inspect(t.Context(), id); err != nil || s.Memory {
			t.Errorf("%+v, %v", s, err)
		}
		must(t, r.Start(t.Context(), id))
		r.wantFilled(t, id)
		r.want(t, id, "ls /after 2>&1", "ls: /after: No such file or directory")
		r.sh(t, id, "echo again >/again")
		r.stop(t, id, time.Second)
		must(t, r.Start(t.Context(), id))
		r.want(t, id, "cat /again", "again")
		r.stop(t, id, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Restore(ctx, id, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		must(t, r.Start(t.Context(), id))
		r.want(t, id, "cat /again", "again")
	})
}

// TestSaveFails leaves nothing.
func TestSaveFails(t *testing.T) {
	r := newRig(t)
	r.boot(t, "s")
	dir := filepath.Join(r.saves(t), "s")
	if err := r.Save(t.Context(), "nobody", dir); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	must(t, r.Save(t.Context(), "s", dir))
	if err := r.Save(t.Context(), "s", dir); !fault.Is(err, fault.Exists) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Save(ctx, "s", dir+"2"); !fault.Is(err, fault.Cancelled) {
		t.Errorf("%v", err)
	}
	s := r.spec("child")
	s.Rootfs.Saved = []string{r.layer}
	if err := r.Create(t.Context(), s); !fault.Is(err, fault.Invalid) {
		t.Errorf("created over what is no saved layer: %v", err)
	}
	must(t, os.Remove(r.box("s").record()))
	if err := r.Save(t.Context(), "s", dir+"3"); !fault.Is(err, fault.State) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(r.saves(t)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
