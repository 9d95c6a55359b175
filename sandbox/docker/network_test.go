package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// wire is a network that ends at the test: a pair of devices for each sandbox.
type wire struct {
	t    *testing.T
	mu   sync.Mutex
	log  []string
	fail error // the answer to Adopt
}

const (
	outside = "10.213.77.1"
	inside  = "10.213.77.2"
	device  = "sgtdocker0"
)

func (w *wire) note(what, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, what+" "+id)
	return w.fail
}

func (w *wire) noted() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.log, ", ")
	w.log = nil
	return s
}

func (w *wire) Attach(context.Context, string) (*os.File, error) {
	return nil, errors.New("a container has a namespace of its own")
}

func (w *wire) Adopt(_ context.Context, id string, namespace *os.File) error {
	if err := w.note("adopt", id); err != nil {
		return err
	}
	there := func() error {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			return errors.New("it is connected already")
		}
		return nil
	}
	if inNamespace(namespace, there) != nil {
		return nil
	}
	unplug()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(namespace.Fd()))}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add a pair: %w", err)
	}
	return errors.Join(
		up(device, outside),
		inNamespace(namespace, func() error { return up("eth0", inside) }),
	)
}

// inNamespace calls do on a thread that is in a network namespace, and ends
// with it.
func inNamespace(namespace *os.File, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// up gives a device an address.
func up(name, ip string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(30, 32)}}
	return errors.Join(netlink.AddrAdd(l, address), netlink.LinkSetUp(l))
}

func (w *wire) Detach(_ context.Context, id string) error {
	unplug()
	return w.note("detach", id)
}

func (w *wire) Resolver() string { return outside }

func unplug() {
	if l, err := netlink.LinkByName(device); err == nil {
		netlink.LinkDel(l)
	}
}

// TestNetwork holds that a sandbox is connected after each of its starts, by
// whom the driver was given, and by nobody else.
func TestNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("connecting a container takes root")
	}
	w := &wire{t: t}
	b := boot(t, docker.Config{Network: w}, func(s *driver.Spec) { s.Network = true })
	t.Cleanup(unplug)
	l, err := net.Listen("tcp", outside+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello", c.RemoteAddr().(*net.TCPAddr).IP)
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	ask := "nc " + outside + " " + port + " </dev/null"
	check := func() {
		t.Helper()
		if got := b.sh(t, ask); got != "hello "+inside+"\n" {
			t.Errorf("got %q", got)
		}
		if got := w.noted(); got != "adopt box" {
			t.Errorf("the network was asked to %q", got)
		}
	}
	check()
	if got := b.sh(t, "grep nameserver /etc/resolv.conf"); got != "nameserver "+outside+"\n" {
		t.Errorf("the name server is %q", got)
	}
	if got := b.sh(t, "grep CapEff /proc/self/status"); got != "CapEff:\t00000000800404fb\n" {
		t.Errorf("a network gives privileges: %q", got)
	}
	b.sh(t, "! ip link set eth0 down 2>/dev/null")
	b.stop(t)
	b.start(t)
	check()

	// Whoever restarts it behind the driver's back gets no network; a start
	// mends that.
	if _, err := engine(t).ContainerRestart(t.Context(), b.container(t), client.ContainerRestartOptions{}); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	check()

	// It goes on after a restart of the server, and after a restore.
	saved := b.save(t)
	if err := b.d.Close(); err != nil {
		t.Fatal(err)
	}
	b.d = open(t, docker.Config{StateDir: b.state, Network: w})
	b.stop(t)
	b.restore(t, saved)
	b.start(t)
	check()

	// Without what it asked for it does not run.
	b.stop(t)
	w.fail = fault.New(fault.Unavailable, "the network service does not answer")
	if err := b.d.Start(t.Context(), b.id); !fault.Is(err, fault.Unavailable) {
		t.Errorf("started without a network: %v", err)
	}
	if s, err := b.d.Inspect(t.Context(), b.id); err != nil || s.State != driver.Stopped {
		t.Errorf("%+v, %v", s, err)
	}
	w.fail = nil
	w.noted()
	if err := b.d.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	if got := w.noted(); got != "detach box" {
		t.Errorf("the network was asked to %q", got)
	}
}

// TestNoNetwork holds that a driver without a network says so, and that a
// sandbox which asks for none has none.
func TestNoNetwork(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	if got := b.sh(t, "ls /sys/class/net"); got != "lo\n" {
		t.Errorf("the devices are %q", got)
	}
	s := spec(t, "second")
	s.Network = true
	if err := b.d.Create(t.Context(), s); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a network of nobody: %v", err)
	}
	remote := open(t, docker.Config{StateDir: b.state, Host: newFront(t, "tcp", "127.0.0.1:0").host, Network: &wire{}})
	defer remote.Close()
	caps, err := remote.Capabilities(t.Context())
	if err != nil || caps.Support[driver.FeatureNetwork].OK {
		t.Errorf("a container on another machine is said to be connected: %+v, %v", caps.Support[driver.FeatureNetwork], err)
	}
}
