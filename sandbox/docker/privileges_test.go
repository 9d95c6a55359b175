package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// debian is the machine's own system as a root filesystem: empty but for the
// links that a merged /usr has. It skips the test on a machine without one.
func debian(t *testing.T) driver.Rootfs {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		target, err := os.Readlink("/" + name)
		if err != nil {
			t.Skipf("this system has no merged /usr: %v", err)
		}
		if err := os.Symlink(strings.TrimPrefix(target, "/"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tmp", "root", "var", "usr", "etc", "run", "proc", "sys", "dev"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return driver.Rootfs{
		Layers:   []string{dir},
		HostDirs: []driver.HostDir{{Source: "/usr", Target: "/usr"}, {Source: "/etc", Target: "/etc"}},
	}
}

func TestPrivileges(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	status := b.sh(t, "cat /proc/self/status")
	for _, want := range []string{
		"NoNewPrivs:\t1\n",
		"Seccomp:\t2\n",
		// CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6,
		// SETUID 7, NET_BIND_SERVICE 10, SYS_CHROOT 18, SETFCAP 31.
		"CapEff:\t00000000800404fb\n", "CapBnd:\t00000000800404fb\n", "CapInh:\t0000000000000000\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("a process of root lacks %q: %s", want, status)
		}
	}
	user := b.run(t, guest.Command{Args: []string{"cat", "/proc/self/status"}, User: "user"})
	for _, want := range []string{"Uid:\t1000\t1000\t1000\t1000\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"} {
		if !strings.Contains(user, want) {
			t.Errorf("a process of a user lacks %q: %s", want, user)
		}
	}
}

// TestSystemTools holds that what is left of root is enough for the tools of
// a system.
func TestSystemTools(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) { s.Rootfs = debian(t) })
	for _, script := range []string{
		`[ "$(su nobody -s /bin/sh -c 'id -un')" = nobody ]`,
		`touch /tmp/f && chown nobody:nogroup /tmp/f && chmod 4755 /tmp/f && [ -u /tmp/f ]`,
		`mkdir -p /tmp/pkg/DEBIAN /tmp/pkg/opt/x && printf 'Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' >/tmp/pkg/DEBIAN/control &&
			echo hello >/tmp/pkg/opt/x/f && dpkg-deb --build /tmp/pkg /tmp/x.deb >/dev/null && mkdir -p /var/lib/dpkg/updates /var/lib/dpkg/info && touch /var/lib/dpkg/status &&
			dpkg -i /tmp/x.deb >/dev/null && [ "$(cat /opt/x/f)" = hello ]`,
		`useradd -m sandgate-t && [ "$(stat -c %U /home/sandgate-t)" = sandgate-t ]`,
		`tar -C /usr -cf - sbin | tar -C /tmp -xpf - && [ -d /tmp/sbin ]`,
		`chroot / /bin/true`,
	} {
		b.sh(t, script)
	}
	if passwd, err := os.ReadFile("/etc/passwd"); err != nil || strings.Contains(string(passwd), "sandgate-t") {
		t.Errorf("a user of the sandbox is in the machine's own /etc/passwd (%v)", err)
	}
}
