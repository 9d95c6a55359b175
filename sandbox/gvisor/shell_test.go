package gvisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

// shellGuest is a guest for tests of the driver alone: a stream to it is a
// shell. PID 1 runs /job when it is sent USR1: what a stream starts does not
// live through a suspension.
const shellGuest = `#!/bin/sh
case $1 in
init)
	trap 'exit 0' TERM
	trap '/bin/sh /job &' USR1
	while :; do sleep 1000 & wait; done ;;
relay)
	exec /bin/sh 2>&1 ;;
esac
`

// rig is a driver on a state directory of its own.
type rig struct {
	*Driver
	layer string
	guest string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is missing: install busybox-static")
	}
	// A place that plain users can reach and that survives the test, which
	// t.TempDir is not.
	dir, err := os.MkdirTemp("", "gvisor-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("state directory: %v", err)
		}
	})
	r := &rig{layer: filepath.Join(dir, "layer"), guest: filepath.Join(dir, "guest")}
	must(t, os.MkdirAll(filepath.Join(r.layer, "bin"), 0o755))
	must(t, os.MkdirAll(filepath.Join(r.layer, "root"), 0o755))
	must(t, os.MkdirAll(filepath.Join(r.layer, "etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(r.layer, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"), 0o644))
	out, err := exec.Command("cp", busybox, filepath.Join(r.layer, "bin/busybox")).CombinedOutput()
	if err != nil {
		t.Fatalf("copy busybox: %v: %s", err, out)
	}
	if out, err := exec.Command(busybox, "--install", "-s", filepath.Join(r.layer, "bin")).CombinedOutput(); err != nil {
		t.Fatalf("install busybox: %v: %s", err, out)
	}
	links, err := os.ReadDir(filepath.Join(r.layer, "bin"))
	must(t, err)
	for _, l := range links {
		if l.Type()&os.ModeSymlink != 0 {
			name := filepath.Join(r.layer, "bin", l.Name())
			must(t, os.Remove(name))
			must(t, os.Symlink("busybox", name))
		}
	}
	must(t, os.WriteFile(r.guest, []byte(shellGuest), 0o755))
	must(t, os.Chmod(dir, 0o755))
	r.Driver = r.open(t, filepath.Join(dir, "state"))
	needSandboxes(t, r.Driver)
	t.Cleanup(func() {
		list, err := r.List(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if err := r.Remove(context.Background(), s.ID); err != nil {
				t.Errorf("remove %s: %v", s.ID, cause(err))
			}
		}
		left, err := r.Leftovers(context.Background(), false)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
		r.Close()
	})
	return r
}

// needSandboxes skips the test where the host allows no sandbox at all, which
// is a matter of its settings for plain users and of the container for root.
func needSandboxes(t testing.TB, d *Driver) {
	t.Helper()
	if u := d.host().usable; !u.OK && (!d.root || strings.Contains(u.Reason, "CAP_SYS_ADMIN")) {
		t.Skip(u.Reason)
	}
}

func (r *rig) open(t testing.TB, dir string) *Driver {
	t.Helper()
	d, err := New(Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Executable: gvisortest.Executable(t)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (r *rig) spec(id string) driver.Spec {
	return driver.Spec{
		ID:     id,
		Rootfs: driver.Rootfs{Layers: []string{r.layer}},
		Guest:  driver.Guest{Path: r.guest, Env: []string{"PATH=/bin"}},
	}
}

// boot creates and starts a sandbox.
func (r *rig) boot(t testing.TB, id string, change ...func(*driver.Spec)) {
	t.Helper()
	s := r.spec(id)
	for _, f := range change {
		f(&s)
	}
	if err := r.Create(t.Context(), s); err != nil {
		t.Fatal(cause(err))
	}
	if err := r.Start(t.Context(), id); err != nil {
		t.Fatal(cause(err))
	}
}

// sh runs a script in a sandbox and returns its output and status.
func (r *rig) sh(t testing.TB, id, script string) (string, string) {
	t.Helper()
	s, err := r.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(cause(err))
	}
	defer s.Close()
	out, status, err := talk(s, script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out, status
}

func talk(s io.ReadWriter, script string) (out, status string, err error) {
	const end = "--end--"
	if _, err := fmt.Fprintf(s, "export PATH=/bin; (\n%s\n)\necho; echo %s $?\n", script, end); err != nil {
		return "", "", err
	}
	var b strings.Builder
	for r := bufio.NewReader(s); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return b.String(), "", err
		}
		if st, ok := strings.CutPrefix(line, end+" "); ok {
			return strings.TrimSpace(b.String()), strings.TrimSpace(st), nil
		}
		b.WriteString(line)
	}
}

// want fails the test when the script's output differs.
func (r *rig) want(t testing.TB, id, script, want string) {
	t.Helper()
	if got, _ := r.sh(t, id, script); got != want {
		t.Errorf("%s\n got %q\nwant %q", script, got, want)
	}
}

func (r *rig) stop(t testing.TB, id string, grace time.Duration) {
	t.Helper()
	if err := r.Stop(t.Context(), id, grace); err != nil {
		t.Fatal(cause(err))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cause shows what an error hides from people.
func cause(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Cause != nil {
		return fmt.Errorf("%w (%s: %w)", err, f.Code, f.Cause)
	}
	return err
}
