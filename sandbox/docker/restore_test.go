package docker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// TestRestore holds that a restored sandbox is the same one with other files,
// whose private layer can be saved again.
func TestRestore(t *testing.T) {
	for name, change := range map[string]func(*driver.Spec){
		"cached":         func(*driver.Spec) {},
		"not cached":     func(s *driver.Spec) { s.Rootfs.Digest = "" },
		"host directory": func(s *driver.Spec) { s.Rootfs.HostDirs = []driver.HostDir{{Source: shown, Target: "/w"}} },
	} {
		t.Run(name, func(t *testing.T) {
			b := boot(t, docker.Config{}, func(s *driver.Spec) {
				s.Labels = map[string]string{"a": "b"}
				s.Limits.MemoryBytes = 64 << 20
				change(s)
			})
			b.sh(t, history)
			first := b.save(t)
			b.sh(t, "rm -r /w/* /home; echo later >/w/f; echo later >/later")
			if err := b.d.Restore(t.Context(), b.id, first); !fault.Is(err, fault.State) {
				t.Fatalf("restored while it runs: %v", err)
			}
			b.stop(t)
			b.restore(t, first)
			s, err := b.d.Inspect(t.Context(), b.id)
			if err != nil || s.State != driver.Stopped || s.Exit.Reason == "" || s.Labels["a"] != "b" {
				t.Errorf("restored: %+v, %v", s, err)
			}
			b.start(t)
			b.sh(t, remains+" && [ ! -e /later ]")
			b.sh(t, "echo changed >/w/u; rm /w/p; touch /w/q")
			second := b.save(t)

			b.stop(t)
			b.restore(t, first)
			b.start(t)
			b.sh(t, remains+" && [ ! -e /w/q ]")
			b.stop(t)
			b.restore(t, second)
			if err := b.d.Discard(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			b.start(t)
			b.sh(t, `[ "$(cat /w/u)$(cat /w/h)$(cat /home/only)" = changedfirstnew ] && [ ! -e /w/p ] && [ -e /w/q ] && [ ! -e /bin/wc ]`)

			// What was restored is part of what is saved.
			again := b.another(t, "again", func(s *driver.Spec) { change(s); s.Rootfs.Saved = []string{b.save(t)} })
			again.sh(t, `[ "$(cat /w/u)$(cat /w/h)$(cat /home/only)" = changedfirstnew ] && [ ! -e /w/p ] && [ -e /w/q ] && [ ! -e /bin/wc ]`)
			if h := hostConfig(t, b); h.Memory != 64<<20 {
				t.Errorf("the memory limit is %d after restores", h.Memory)
			}
			if lines, err := b.d.Leftovers(t.Context(), false); err != nil || len(lines) > 0 {
				t.Errorf("leftovers: %q, %v", lines, err)
			}
			for _, id := range []string{"again", b.id} {
				if err := b.d.Remove(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if left := leaks(t, engine(t), b.id); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// shown is a directory of the host that has what a sandbox could change.
const shown = "/usr/share/doc/base-files"

// hostConfig is how the engine confines a sandbox.
func hostConfig(t *testing.T, b *box) *container.HostConfig {
	t.Helper()
	r, err := engine(t).ContainerInspect(t.Context(), b.container(t), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Container.HostConfig
}

// TestRestoreCutShort makes what crashes in the middle of a restore leave: the
// sandbox keeps its files, and the rest is found.
func TestRestoreCutShort(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) {
		s.Rootfs.HostDirs = []driver.HostDir{{Source: shown, Target: "/w"}}
	})
	b.sh(t, "echo old >/f; echo old >/w/f")
	saved := b.save(t)
	b.stop(t)
	record := filepath.Join(b.state, "docker", b.id)
	before, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	b.restore(t, saved)
	after, err := os.ReadFile(record)
	if err != nil || bytes.Equal(before, after) {
		t.Fatalf("a restore does not change the record (%v)", err)
	}

	// The crash came before the record was replaced: the first container is
	// the sandbox, and gone by now, which is not to be told from its loss.
	if err := os.WriteFile(record, before, 0o600); err != nil {
		t.Fatal(err)
	}
	lines, err := b.d.Leftovers(t.Context(), false)
	if err != nil || len(lines) != 4 { // container, its two own volumes (it holds the third), restored layer
		t.Errorf("leftovers of a restore: %q, %v", lines, err)
	}
	for _, l := range lines {
		if !strings.Contains(l, "restore") {
			t.Errorf("%q", l)
		}
	}

	// And it came after: the same things belong to the sandbox.
	if err := os.WriteFile(record, after, 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, err := b.d.Leftovers(t.Context(), true); err != nil || len(lines) > 0 {
		t.Errorf("leftovers: %q, %v", lines, err)
	}
	b.start(t)
	b.sh(t, `[ "$(cat /f)$(cat /w/f)" = oldold ]`)
	b.stop(t)

	// What the next generation has left of an attempt does not stop another.
	if err := os.MkdirAll(filepath.Join(b.state, "docker-restored", b.id+".2", "rest"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.restore(t, saved)
	if err := b.d.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"docker", "docker-restored"} {
		if left, err := os.ReadDir(filepath.Join(b.state, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", dir, left, err)
		}
	}
}
