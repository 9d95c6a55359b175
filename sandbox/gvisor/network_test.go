package gvisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// veths is a network of this test: a namespace for each sandbox with one end
// of a pair of devices, and one for the other ends, in which a server echoes.
type veths struct {
	mu    sync.Mutex
	far   *os.File
	near  map[string]*os.File
	calls int
	fails error
}

const (
	nearAddress = "10.9.8.15/24"
	farAddress  = "10.9.8.2/24"
	echoAt      = "10.9.8.2:7"
	mtu         = 9000
)

func newVeths(t *testing.T) *veths {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not on this kind of machine: network namespaces are made as root")
	}
	v := &veths{near: make(map[string]*os.File)}
	var listener net.Listener
	must(t, inNewNamespace(&v.far, func() (err error) {
		if err := up("lo"); err != nil {
			return err
		}
		listener, err = net.Listen("tcp", ":7")
		return err
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-served
		v.far.Close()
		if len(v.near) > 0 {
			t.Errorf("still attached: %v", v.near)
		}
	})
	return v
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// inNewNamespace runs f in a network namespace that it makes, or in the one
// that is open already.
func inNewNamespace(ns **os.File, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		var err error
		if *ns == nil {
			err = unix.Unshare(unix.CLONE_NEWNET)
			if err == nil {
				*ns, err = os.Open("/proc/thread-self/ns/net")
			}
		} else {
			err = unix.Setns(int((*ns).Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func address(name, cidr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	return netlink.AddrReplace(link, a)
}

func (v *veths) Attach(_ context.Context, id string) (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fails != nil {
		return nil, v.fails
	}
	v.calls++
	if v.near[id] == nil {
		var ns *os.File
		if err := inNewNamespace(&ns, func() error { return up("lo") }); err != nil {
			return nil, err
		}
		v.near[id] = ns
		err := inNewNamespace(&v.far, func() error {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "far", MTU: mtu}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.Fd())}
			if err := netlink.LinkAdd(pair); err != nil {
				return err
			}
			if err := address("far", farAddress); err != nil {
				return err
			}
			return up("far")
		})
		if err == nil {
			err = inNewNamespace(&ns, func() error {
				link, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return netlink.LinkSetMTU(link, mtu)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("make a pair: %w", err)
		}
	}
	ns := v.near[id]
	err := inNewNamespace(&ns, func() error {
		if err := up("eth0"); err != nil {
			return err
		}
		if err := address("eth0", nearAddress); err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Gw: net.IPv4(10, 9, 8, 2)})
	})
	if err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()))
}

func (v *veths) Adopt(context.Context, string, *os.File) error { panic("not for this driver") }

func (v *veths) Detach(_ context.Context, id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ns := v.near[id]; ns != nil {
		ns.Close()
		delete(v.near, id)
	}
	return nil
}

func (v *veths) Resolver() string { return "10.9.8.2" }

func TestNetwork(t *testing.T) {
	v := newVeths(t)
	r := newNetworkRig(t, v)
	r.need(t, driver.FeatureNetwork)
	r.boot(t, "net", func(s *driver.Spec) { s.Network = true })
	r.boot(t, "off")
	echoes := func(id string) {
		t.Helper()
		r.want(t, id, "echo over the wire | nc -w 5 10.9.8.2 7", "over the wire")
	}
	loopback := func(id string) {
		t.Helper()
		r.want(t, id, "(echo looped | nc -l -p 99 >/dev/null) & until nc -w 5 127.0.0.1 99 </dev/null 2>/dev/null; do usleep 10000; done", "looped")
	}
	echoes("net")
	loopback("net")
	loopback("off")
	r.want(t, "off", "echo x | nc -w 1 10.9.8.2 7", "nc: can't connect to remote host (10.9.8.2): Network is unreachable")
	r.want(t, "net", "cat /etc/resolv.conf; ifconfig eth0 | grep -o 'MTU:[0-9]*'", "nameserver 10.9.8.2\nMTU:9000")
	r.want(t, "off", "cat /etc/resolv.conf", "# This sandbox has no network.")

	r.stop(t, "net", 0)
	must(t, r.Start(t.Context(), "net"))
	echoes("net")

	// The processes come back with a network that works; a connection that was
	// open is reset and says so.
	const within = "i=0; until [ -s %s ] || [ $((i+=1)) -gt 2000 ]; do usleep 5000; done; cat %[1]s"
	r.sh(t, "net", `echo '(echo first; sleep 1000) | (nc 10.9.8.2 7 >/answer; echo gone >/gone) &
while :; do echo again | nc -w 5 10.9.8.2 7 >/again; usleep 100000; done' >/job; kill -USR1 1`)
	r.want(t, "net", fmt.Sprintf(within, "/answer"), "first")
	r.suspend(t, "net")
	r.resume(t, "net", true)
	r.sh(t, "net", "rm -f /again")
	echoes("net")
	loopback("net")
	r.want(t, "net", fmt.Sprintf(within, "/gone"), "gone")
	r.want(t, "net", fmt.Sprintf(within, "/again"), "again")
	for range 2 {
		r.suspend(t, "net")
		r.resume(t, "net", true)
		echoes("net")
	}
	// A provider that does not answer costs no processes.
	r.suspend(t, "net")
	v.fails = fault.New(fault.Unavailable, "the provider does not answer")
	if _, err := r.Resume(t.Context(), "net"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("resumed without a network: %v", err)
	}
	if err := r.Start(t.Context(), "net"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("started without a network: %v", err)
	}
	v.fails = nil
	r.resume(t, "net", true)
	echoes("net")
	if v.calls < 6 {
		t.Errorf("attached %d times for 6 starts", v.calls)
	}
	must(t, r.Remove(t.Context(), "net"))
	if len(v.near) > 0 {
		t.Error("removed, it is still attached")
	}
}

// TestDialLoopback reaches a server inside through the guest, with a network
// and without, before and after a suspension.
func TestDialLoopback(t *testing.T) {
	r := newNetworkRig(t, newVeths(t))
	r.dialLoopback(t, "on", true)
	r.dialLoopback(t, "off", false)
}

// newNetworkRig is newRig with somebody who provides a network.
func newNetworkRig(t *testing.T, n driver.Network) *rig {
	t.Helper()
	r := newRig(t)
	must(t, r.Driver.Close())
	d, err := New(Config{StateDir: r.dir, Log: r.log, Executable: r.executable, Network: n})
	must(t, err)
	r.Driver = d
	return r
}

func (r *rig) dialLoopback(t *testing.T, id string, network bool) {
	t.Helper()
	r.boot(t, id, func(s *driver.Spec) {
		s.Network = network
		s.Guest = driver.Guest{Path: drivertest.BuildGuest(t)}
	})
	connect := func() *guest.Conn {
		stream, err := r.Dial(t.Context(), id)
		must(t, err)
		c, err := guest.Connect(t.Context(), stream)
		must(t, err)
		return c
	}
	reach := func(c *guest.Conn) {
		t.Helper()
		var s io.ReadWriteCloser
		for { // until it listens
			var err error
			if s, err = c.Dial(t.Context(), "tcp", "127.0.0.1:99"); err == nil {
				break
			}
			if !fault.Is(err, fault.Unavailable) {
				t.Fatal(cause(err))
			}
		}
		defer s.Close()
		_, err := s.Write([]byte("hello\n"))
		must(t, err)
		answer := make([]byte, 6)
		if _, err := io.ReadFull(s, answer); err != nil || string(answer) != "hello\n" {
			t.Errorf("%s: %q, %v", id, answer, err)
		}
	}
	c := connect()
	_, err := c.Start(t.Context(), guest.Command{ID: "server", NoStdin: true, Args: []string{"/bin/nc", "-ll", "-p", "99", "-e", "/bin/cat"}}, guest.Output{})
	must(t, err)
	reach(c)
	must(t, c.Close())
	r.suspend(t, id)
	r.resume(t, id, true)
	c = connect()
	reach(c)
	must(t, c.Close())
	must(t, r.Remove(t.Context(), id))
}

// TestNoNetwork refuses what nobody provides.
func TestNoNetwork(t *testing.T) {
	r := newRig(t)
	s := r.spec("net")
	s.Network = true
	if err := r.Create(t.Context(), s); !fault.Is(err, fault.Unsupported) {
		t.Errorf("%v", err)
	}
	c, err := r.Capabilities(t.Context())
	must(t, err)
	if n := c.Support[driver.FeatureNetwork]; n.OK || n.Reason == "" {
		t.Errorf("%+v", n)
	}
}
