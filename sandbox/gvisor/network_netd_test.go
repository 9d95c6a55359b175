package gvisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/netd"
	"github.com/sandgate/sandgate/sandbox/netd/netdtest"
)

// provider is a daemon of this test. It does not answer when it is told so.
type provider struct {
	*netd.Client
	dir   string
	fails atomic.Bool
}

func (p *provider) Adopt(ctx context.Context, id string, ns *os.File) error {
	if p.fails.Load() {
		return fault.New(fault.Unavailable, "the provider does not answer")
	}
	return p.Client.Adopt(ctx, id, ns)
}

// TestNetworkOfPlainUser connects sandboxes of a plain user with a daemon that
// is one too. TestUnprivileged makes the machine for it.
func TestNetworkOfPlainUser(t *testing.T) {
	if os.Geteuid() == 0 || os.Getenv(netdtest.Variable) == "" {
		t.Skip("TestUnprivileged runs it")
	}
	if ok, why := netd.Probe(t.Context()); !ok {
		t.Skip("sandboxes cannot be connected here: " + why)
	}
	n := newProvider(t)
	r := newNetworkRig(t, n)
	r.need(t, driver.FeatureNetwork)
	must(t, n.SetPolicy(t.Context(), "net", []string{netdtest.Site}))
	r.boot(t, "net", func(s *driver.Spec) { s.Network = true })
	r.boot(t, "off")
	sh := func(script string) string { out, _ := r.sh(t, "net", script); return out }
	netdtest.Reaches(t, sh)
	netdtest.Refused(t, sh)
	n.told(t, "dns "+netdtest.Other, "tcp "+netdtest.Metadata+":80")
	r.want(t, "net", "cat /etc/resolv.conf; ifconfig lo | grep -o 127.0.0.1", "nameserver "+n.Resolver()+"\n127.0.0.1")
	if out, _ := r.sh(t, "off", netdtest.Page(netdtest.Address, netdtest.Site)); !strings.Contains(out, "unreachable") {
		t.Errorf("without a network: %q", out)
	}
	must(t, n.SetPolicy(t.Context(), "loop", nil))
	r.dialLoopback(t, "loop", true)

	// A name means the same after a start, whatever it is from.
	meaning := netdtest.Meaning(t, sh)
	again := func() {
		t.Helper()
		netdtest.Reaches(t, sh)
		if now := netdtest.Meaning(t, sh); now != meaning {
			t.Errorf("%s is at %s, and was at %s", netdtest.Site, now, meaning)
		}
	}
	for range 2 {
		r.suspend(t, "net")
		r.resume(t, "net", true)
		again()
	}
	r.stop(t, "net", 0)
	must(t, r.Start(t.Context(), "net"))
	again()

	// A provider that does not answer costs no processes.
	r.suspend(t, "net")
	n.fails.Store(true)
	if _, err := r.Resume(t.Context(), "net"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("resumed without a network: %v", err)
	}
	if err := r.Start(t.Context(), "net"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("started without a network: %v", err)
	}
	n.fails.Store(false)
	r.resume(t, "net", true)
	again()

	// Another daemon goes on with it. One that comes after a death cannot, and
	// is there for the next start.
	n.takeOver(t)
	again()
	n.kill(t)
	if out := sh(netdtest.Page(netdtest.Site, netdtest.Site)); strings.Contains(out, "host=") {
		t.Errorf("reached while nobody decides: %q", out)
	}
	r.suspend(t, "net")
	r.resume(t, "net", true)
	again()
	netdtest.Refused(t, sh)

	must(t, r.Remove(t.Context(), "net"))
	if left, err := n.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("removed, it is still connected: %+v, %v", left, err)
	}
}

// newProvider runs a daemon of this user for the time of the test.
func newProvider(t *testing.T) *provider {
	t.Helper()
	dir, err := os.MkdirTemp("", "gvisor-netd-")
	must(t, err)
	p := &provider{dir: filepath.Join(dir, "netd")}
	p.Client, err = netd.Ensure(t.Context(), p.dir, "/proc/self/exe", "--resolver", netdtest.Resolver)
	must(t, err)
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		info, err := p.Ping(ctx)
		must(t, err)
		must(t, p.Stop(ctx))
		ended(t, info.PID)
		must(t, os.RemoveAll(dir))
	})
	return p
}

// takeOver has a daemon take the place of the one that runs.
func (p *provider) takeOver(t *testing.T) {
	t.Helper()
	before, err := p.Ping(t.Context())
	must(t, err)
	next := exec.Command("/proc/self/exe", "netd", "--dir", p.dir, "--takeover", "--resolver", netdtest.Resolver)
	must(t, next.Start())
	t.Cleanup(func() { _ = next.Wait() }) // it was killed, or is told to stop
	ended(t, before.PID)
	if after, err := p.Ping(t.Context()); err != nil || after.PID != next.Process.Pid {
		t.Errorf("process %d answers and not %d: %v", after.PID, next.Process.Pid, err)
	}
}

func (p *provider) kill(t *testing.T) {
	t.Helper()
	info, err := p.Ping(t.Context())
	must(t, err)
	must(t, unix.Kill(info.PID, unix.SIGKILL))
	ended(t, info.PID)
}

// ended waits until a process is dead; its parent may not have noticed.
func ended(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(15 * time.Second); ; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("process %d goes on", pid)
		}
	}
}

// told waits until the daemon has told of all of these.
func (p *provider) told(t *testing.T, want ...string) {
	t.Helper()
	var told strings.Builder
	missing := func() bool {
		for _, w := range want {
			if !strings.Contains(told.String(), w) {
				return true
			}
		}
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for after := uint64(0); missing(); {
		found, next, _, err := p.Refusals(ctx, after, time.Second)
		if err != nil {
			t.Fatalf("%v; told of %s", err, told.String())
		}
		for _, f := range found {
			fmt.Fprintln(&told, f.Proto, f.Target)
		}
		after = next
	}
}
