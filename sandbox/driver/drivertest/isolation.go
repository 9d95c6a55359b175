package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func isolationTests() []test {
	return []test{
		{name: "Isolation/Hostname", walls: true, run: testHostname},
		{name: "Isolation/NoNetwork", walls: true, run: testNoNetwork},
		{name: "Isolation/HostSockets", walls: true, run: testHostSockets},
		{name: "Isolation/HostFiles", walls: true, run: testHostFiles},
		{name: "Isolation/HostProcesses", walls: true, run: testHostProcesses},
		{name: "Isolation/NoPrivileges", walls: true, run: testNoPrivileges},
		{name: "Isolation/GuestIsReadOnly", walls: true, run: testGuestReadOnly},
		{name: "Isolation/OrphansAreReaped", walls: true, run: testOrphans},
	}
}

func testHostname(t *testing.T, e *env) {
	b := e.boot(t)
	if got := b.sh(t, "hostname"); got != b.id {
		t.Errorf("the hostname is %q, want the id %q", got, b.id)
	}
	b = e.boot(t, func(s *driver.Spec) { s.Hostname = "lab-1" })
	if got := b.sh(t, "hostname; uname -n"); got != "lab-1\nlab-1" {
		t.Errorf("the hostname is %q", got)
	}
}

func testNoNetwork(t *testing.T, e *env) {
	b := e.boot(t)
	if got := b.sh(t, `sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev`); got != "lo" {
		t.Errorf("the interfaces are %q, want lo alone", got)
	}
	for line := range strings.SplitSeq(b.sh(t, "cat /proc/net/route"), "\n") {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "Iface" && f[0] != "lo" {
			t.Errorf("there is a route: %q", line)
		}
	}
	c, cancel := context.WithTimeout(ctx(t), 5*time.Second)
	defer cancel()
	if s, err := b.conn.Dial(c, "tcp", "192.0.2.1:80"); err == nil {
		s.Close()
		t.Error("a connection to the outside was opened")
	}

	// Loopback works inside.
	b.background(t, "nc -l -p 7001 -e cat & echo ready; wait")
	var s guest.Stream
	for {
		var err error
		if s, err = b.conn.Dial(ctx(t), "tcp", "127.0.0.1:7001"); err == nil {
			break
		}
		if ctx(t).Err() != nil {
			t.Fatal(err)
		}
	}
	defer s.Close()
	if _, err := s.Write([]byte("round trip")); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "round trip" {
		t.Errorf("%q, %v", got, err)
	}
}

func testHostSockets(t *testing.T, e *env) {
	b := e.boot(t)
	for _, l := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:0"},
		{"unix", "@" + newID()}, // abstract: belongs to the network namespace
	} {
		listener, err := net.Listen(l.network, l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		c, cancel := context.WithTimeout(ctx(t), 5*time.Second)
		s, err := b.conn.Dial(c, l.network, listener.Addr().String())
		cancel()
		if err == nil {
			s.Close()
			t.Errorf("a sandbox reaches the host's %s", listener.Addr())
		}
	}
}

func testHostFiles(t *testing.T, e *env) {
	secret := make([]byte, 16)
	rand.Read(secret)
	content := hex.EncodeToString(secret)
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	b := e.boot(t)
	b.refuses(t, "cat "+path)
	for _, through := range []string{"/proc/1/root", "/proc/self/root", "/proc/1/cwd/../../../../..", "/proc/self/fd/0/../../../.."} {
		b.refuses(t, "cat "+through+path)
	}
	b.refuses(t, "ls "+e.state)
	if got := b.sh(t, `cat /proc/1/environ /proc/self/environ | tr '\0' '\n'`); strings.Contains(got, secretName) {
		t.Error("the environment of the server reaches PID 1")
	}
	// No descriptor of the host may hang around in PID 1.
	for line := range strings.SplitSeq(b.sh(t, "cd /proc/1/fd && for f in *; do readlink $f; done; true"), "\n") {
		if strings.HasPrefix(line, e.state) || strings.HasPrefix(line, filepath.Dir(path)) {
			t.Errorf("PID 1 holds %s", line)
		}
	}
}

func testHostProcesses(t *testing.T, e *env) {
	mark := "9000" + fmt.Sprint(time.Now().UnixNano()%100000)
	c, cancel := context.WithCancel(ctx(t))
	cmd := exec.CommandContext(c, "sleep", mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	b := e.boot(t)
	if got := b.sh(t, `cat /proc/[0-9]*/cmdline | tr '\0' ' '`); strings.Contains(got, mark) {
		t.Error("a sandbox sees a process of the host")
	}
	other := e.boot(t)
	other.background(t, "sleep "+mark+" & echo ready; wait")
	if got := b.sh(t, `cat /proc/[0-9]*/cmdline | tr '\0' ' '`); strings.Contains(got, mark) {
		t.Error("a sandbox sees a process of another")
	}
	// Root of a sandbox may kill all that it sees, the relay of its connection
	// included. That is all of this sandbox but PID 1, and nothing else.
	boot := b.conn.Hello().BootID
	_, _ = b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: []string{"/bin/sh", "-c", "kill -9 -1"}}, guest.Output{})
	other.ping(t)
	b.conn = b.reconnect(t) // the killing may still be under way
	if got := b.conn.Hello().BootID; got != boot {
		t.Errorf("the sandbox booted anew: %s, %s", boot, got)
	}
}

func testNoPrivileges(t *testing.T, e *env) {
	b := e.boot(t)
	for _, script := range []string{
		"mount -t tmpfs none /mnt",
		"mount -t proc none /mnt",
		"mount -o bind /etc /mnt",
		"mount -o remount,rw /proc",
		"mkdir -p /mnt/c && mount -t cgroup none /mnt/c",
		"mknod /tmp/disk b 8 0 && head -c 512 /tmp/disk",
		"mknod /tmp/mem c 1 1 && head -c 512 /tmp/mem",
		"mknod /tmp/kmsg c 1 11 && dd if=/tmp/kmsg bs=8192 count=1",
		"head -c 16 /dev/mem",
		"head -c 16 /proc/kcore",
		"hostname other",
		"ip link add dummy0 type dummy",
		"unshare -m true",
		"dmesg -n 1",
	} {
		b.refuses(t, script)
	}
	b.ping(t)
}

func testGuestReadOnly(t *testing.T, e *env) {
	before, err := os.ReadFile(e.h.Guest.Path)
	if err != nil {
		t.Fatal(err)
	}
	b := e.boot(t)
	for _, script := range []string{
		"echo x >" + driver.GuestPath,
		"echo x >>" + driver.GuestPath,
		"rm -f " + driver.GuestPath + " && ! ls " + driver.GuestPath,
		"chmod 4777 " + driver.GuestPath,
	} {
		b.refuses(t, script)
	}
	connect(t, e.d, b.id)
	after, err := os.ReadFile(e.h.Guest.Path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the guest program on the host has changed (%v)", err)
	}
}

// testOrphans holds that PID 1 collects processes whose parents are gone.
func testOrphans(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, `i=0; while [ $i -lt 30 ]; do i=$((i+1)); sh -c 'sh -c "exit 3" & exit 0'; done`)
	b.until(t, "PID 1 collects them all", `! cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z 1 '`)
}
