package drivertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// testEscapePrograms holds that no program of the host can be opened for
// writing, while the host starts what it starts in a sandbox: the guest, and
// whatever carries it in (CVE-2019-5736).
func testEscapePrograms(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		out := newScreen()
		p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), Args: []string{escapeProgram, "programs"}}, guest.Output{Stdout: out, Stderr: out})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		out.wait(t, "ready\n")
		for range 5 {
			connect(t, e.d, b.id).Close()
		}
		// A program that is the next one that the driver runs, if it looks for
		// it in the sandbox.
		b.refuses(t, "ln -sf /proc/self/exe "+driver.GuestPath)
		b.refuses(t, "mv "+filepath.Dir(driver.GuestPath)+" /moved && mkdir "+filepath.Dir(driver.GuestPath)+" && ln -s /proc/self/exe "+driver.GuestPath)
		b.conn = connect(t, e.d, b.id)
		if err := p.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(ctx(t)); err != nil || exit.Status() != 0 {
			t.Errorf("%+v %v: %s", exit, err, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if name, ok := strings.CutPrefix(line, "opened "); ok && !strings.HasSuffix(strings.TrimSpace(name), "/bin/busybox") {
				t.Errorf("for writing: %s", name)
			}
		}
		if _, tried, _ := strings.Cut(out.String(), "tried "); strings.HasPrefix(tried, "0 ") || tried == "" {
			t.Errorf("no program was found: %q", out.String())
		}
	})
}

// testEscapeBootFiles puts links to the host's files in the places where a
// driver writes, or over which it mounts, when a sandbox starts.
func testEscapeBootFiles(t *testing.T, e *env) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("the host's\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	e.siege(t, func(b *box) {
		for _, script := range []string{
			// The files, one by one, and whole directories.
			`for f in resolv.conf hosts hostname mtab; do rm -f /etc/$f; ln -sf ` + target + ` /etc/$f; ln -sf ` + target + ` /etc/$f.new; mv /etc/$f.new /etc/$f; done`,
			`mv /etc /etc.old && ln -s ` + dir + ` /etc && for f in resolv.conf hosts hostname; do ln -s target ` + dir + `/$f; done`,
			`rm -rf /tmp /workspace /run; ln -s ` + dir + ` /tmp; ln -s ` + dir + ` /workspace; ln -s ` + dir + ` /run; ln -s ` + dir + ` /var/run`,
			`rmdir /proc /sys /dev; mv /dev /dev.old; mv /proc /proc.old; rm -rf /.sandgate; ln -s ` + dir + ` /.sandgate`,
		} {
			b.try(t, script) // some of it may be refused
			b.stop(t, 0)
			if err := e.d.Start(ctx(t), b.id); err != nil {
				// A sandbox may spoil itself, and is told so.
				t.Logf("a sandbox with such files does not start: %s", causes(err))
				break
			}
			b.conn = connect(t, e.d, b.id)
		}
		found, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(target)
		if len(found) != 1 || err != nil || string(content) != "the host's\n" {
			t.Errorf("the host's files: %v, %q, %v", found, content, err)
		}
	})
}

// testBigNames holds that names that no filesystem takes, and trees that no
// path reaches the ground of, harm nobody: not who lists, nor who removes.
func testBigNames(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		for name, result := range tries(b.escape(t, "", "deep", "100")) {
			if result != "file name too long" {
				t.Errorf("%s: %s", name, result)
			}
		}
		seen := 0
		begin := time.Now()
		l, err := b.conn.ListFiles(ctx(t), ".", guest.ListOptions{Recursive: true}, func(guest.FileInfo) error { seen++; return nil })
		if err != nil || seen < 10 {
			t.Errorf("listed %d, %+v %v", seen, l, err)
		}
		t.Logf("listed %d in %v", seen, time.Since(begin))
		b.escape(t, "", "inodes", "5000") // and it all goes with the sandbox
	})
}
