package docker_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/netd"
	"github.com/sandgate/sandgate/sandbox/netd/netdtest"
)

// newNetd runs a network daemon for the time of the test, on a machine of its
// own: what containers send ends there, not on this host.
func newNetd(t *testing.T) *netd.Client {
	t.Helper()
	if ok, why := netd.Probe(t.Context()); !ok {
		t.Skip("sandboxes cannot be connected here: " + why)
	}
	dir := filepath.Join(t.TempDir(), "netd")
	err := netdtest.New(t).Do(func() error {
		_, err := netd.Ensure(context.Background(), dir, "/proc/self/exe", "--resolver", netdtest.Resolver)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := netd.NewClient(dir) // one that starts none on this host
	t.Cleanup(func() {
		if left, err := c.List(context.Background()); err != nil || len(left) > 0 {
			t.Errorf("still connected: %+v, %v", left, err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestNetworkDaemon reaches what the real daemon allows from a container, and
// nothing else, through all that gives it a new namespace.
func TestNetworkDaemon(t *testing.T) {
	engine(t)
	c := newNetd(t)
	if err := c.SetPolicy(t.Context(), "box", []string{netdtest.Site}); err != nil {
		t.Fatal(err)
	}
	b := boot(t, docker.Config{Network: c}, func(s *driver.Spec) { s.Network = true })
	t.Cleanup(func() { _ = b.d.Remove(context.Background(), b.id) }) // where the test has not come so far
	sh := func(script string) string { return b.sh(t, script) }
	netdtest.Reaches(t, sh)
	netdtest.Refused(t, sh)
	if got, want := b.sh(t, "grep nameserver /etc/resolv.conf; ls /sys/class/net"), "nameserver "+c.Resolver()+"\neth0\nlo\n"; got != want {
		t.Errorf("inside there is %q, want %q", got, want)
	}
	meaning := netdtest.Meaning(t, sh)
	again := func() {
		t.Helper()
		netdtest.Reaches(t, sh)
		if now := netdtest.Meaning(t, sh); now != meaning {
			t.Errorf("%s is at %s, and was at %s", netdtest.Site, now, meaning)
		}
	}
	b.stop(t)
	b.start(t)
	again()
	if _, err := engine(t).ContainerRestart(t.Context(), b.container(t), client.ContainerRestartOptions{}); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	again()
	netdtest.Refused(t, sh)

	// Other rules hold for what runs.
	if err := c.SetPolicy(t.Context(), b.id, []string{}); err != nil {
		t.Fatal(err)
	}
	if got := sh(netdtest.Page(netdtest.Site, netdtest.Site)); strings.Contains(got, "host=") {
		t.Errorf("reached without a rule: %q", got)
	}
	if err := b.d.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Traffic(t.Context(), b.id); err == nil {
		t.Error("removed, it is still connected")
	}
}
