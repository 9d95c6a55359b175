package docker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
)

// TestLeftovers makes what crashes leave behind and lets doctor find it.
func TestLeftovers(t *testing.T) {
	cli := engine(t)
	dir := stateDir(t)
	d := open(t, docker.Config{StateDir: dir})
	defer d.Close()

	// An image of layers that go away afterwards.
	layer := filepath.Join(t.TempDir(), "layer")
	if err := os.Mkdir(layer, 0o755); err != nil {
		t.Fatal(err)
	}
	s := spec(t, "layered")
	s.Rootfs = driver.Rootfs{Layers: []string{layer}, Digest: "sha256:" + strings.Repeat("ab", 32)}
	if err := d.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	// A sandbox of which nothing but volumes and its own image is left.
	lost := spec(t, "lost")
	lost.Rootfs.Digest = ""
	lost.Rootfs.HostDirs = []driver.HostDir{{Source: "/usr", Target: "/mnt/usr"}}
	if err := d.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if lines, err := d.Leftovers(t.Context(), false); err != nil || len(lines) > 0 {
		t.Errorf("nothing is left over yet: %q, %v", lines, err)
	}
	if err := d.Remove(t.Context(), "layered"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(layer); err != nil {
		t.Fatal(err)
	}
	for _, name := range containers(t, cli, "lost") {
		if _, err := cli.ContainerRemove(t.Context(), name, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "docker", "lost")); err != nil {
		t.Fatal(err)
	}
	// A container that carried a guest.
	_, err := cli.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: "sandgate-test-carrier-" + d.State(), Image: "sandgate/once:" + d.State() + "-lost",
		Config: carrierConfig(d.State()),
	})
	if err != nil {
		t.Fatal(err)
	}

	lines, err := d.Leftovers(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0-upper of a sandbox", "0-work of a sandbox", "0-view of a sandbox", "of layers that are gone", "that carried the guest"} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("%q is not found among %q", want, lines)
		}
	}
	if _, err := d.Leftovers(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if lines, err := d.Leftovers(t.Context(), false); err != nil || len(lines) > 0 {
		t.Errorf("after the cleaning: %q, %v", lines, err)
	}
	if lines := leaks(t, cli, "lost"); len(lines) > 0 {
		t.Errorf("after the cleaning: %q", lines)
	}
}

// TestHostDirNames shows directories whose names mean something to overlayfs.
func TestHostDirNames(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) {
		for i, name := range []string{"a:b", "a,b", `a\b`, "a b", "ro,a=b"} {
			dir := filepath.Join(t.TempDir(), name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte(name+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s.Rootfs.HostDirs = append(s.Rootfs.HostDirs, driver.HostDir{Source: dir, Target: "/mnt/" + string(rune('0'+i))})
		}
		sticky := t.TempDir()
		if err := os.Chmod(sticky, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(sticky, 1000, 1000); err != nil {
			t.Skipf("this takes root: %v", err)
		}
		s.Rootfs.HostDirs = append(s.Rootfs.HostDirs, driver.HostDir{Source: sticky, Target: "/mnt/sticky"})
	})
	if got := b.sh(t, "cat /mnt/?/f && touch /mnt/0/x && stat -c %a:%u:%g /mnt/0 /mnt/sticky"); got != "a:b\na,b\na\\b\na b\nro,a=b\n755:0:0\n1777:1000:1000\n" {
		t.Errorf("got %q", got)
	}
}

func carrierConfig(state string) *container.Config {
	return &container.Config{
		Entrypoint: []string{driver.GuestPath},
		Labels:     map[string]string{"sandgate.state": state, "sandgate.guest": "L25v"},
	}
}
