package netd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// connect joins S and R with a pair of interfaces, or sets right what is there:
// gVisor takes the address off eth0 when it starts.
func connect(s, r *os.File) error {
	fresh := false
	err := within(r, func() error {
		var err error
		fresh, err = readyRouter(s)
		return err
	})
	if err != nil {
		return err
	}
	err = within(s, readySandbox)
	if errors.As(err, new(netlink.LinkNotFoundError)) && !fresh {
		// The end in S is gone while that in R stayed; a pair is whole or not.
		if err := within(r, func() error { return removeLink(routerName) }); err != nil {
			return err
		}
		return connect(s, r)
	}
	if err != nil {
		return err
	}
	return errors.Join(within(r, func() error { return waitUp(routerName) }), within(s, func() error { return waitUp(insideName) }))
}

// upTimeout bounds the waiting for an interface. One that is late works all the
// same, a little later.
const upTimeout = 500 * time.Millisecond

// waitUp waits until an interface sends. The kernel gets it ready in the
// background, and what is sent before is lost: the first question of a sandbox
// would take a second.
func waitUp(name string) error {
	for end := time.Now().Add(upTimeout); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find interface: %w", err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			break
		}
	}
	return nil
}

// readyRouter runs in R.
func readyRouter(s *os.File) (fresh bool, err error) {
	// All of IPv6 is refused by the rules as well; this way nobody waits.
	if err := sysctl("net/ipv6/conf/all/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	link, err := netlink.LinkByName(routerName)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		if err := taken(s); err != nil {
			return false, err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = routerName, mtu
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: insideName, PeerNamespace: netlink.NsFd(s.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return false, fmt.Errorf("make interfaces: %w", err)
		}
		fresh = true
		link, err = netlink.LinkByName(routerName)
	}
	if err != nil {
		return false, fmt.Errorf("find interface: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return false, fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return false, fmt.Errorf("raise loopback: %w", err)
	}
	if err := address(link, netip.PrefixFrom(gateway, inside.Bits())); err != nil {
		return false, err
	}
	// Every address is local here: what arrives has arrived. The table is main,
	// so that the route to the sandbox, which is longer, still wins.
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	})
	if err != nil {
		return false, fmt.Errorf("make every address local: %w", err)
	}
	return fresh, nil
}

// taken refuses a namespace that has an interface of our name already.
func taken(s *os.File) error {
	return within(s, func() error {
		if _, err := netlink.LinkByName(insideName); err == nil {
			return fault.New(fault.State, "the sandbox has a network interface %s of its own", insideName)
		}
		return nil
	})
}

// readySandbox runs in S.
func readySandbox() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	link, err := netlink.LinkByName(insideName)
	if err != nil {
		return fmt.Errorf("find interface inside: %w", err)
	}
	// Loopback keeps its ::1; nothing else has IPv6, so that it fails at once.
	if err := sysctl("net/ipv6/conf/"+insideName+"/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := address(link, inside); err != nil {
		return err
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(),
		Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	})
	if err != nil {
		return fmt.Errorf("set default route inside: %w", err)
	}
	return nil
}

func address(link netlink.Link, p netip.Prefix) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("set address %s: %w", p, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("raise interface: %w", err)
	}
	return nil
}

// removeLink removes an interface of the present namespace, and with it its
// other end.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface: %w", err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove interface: %w", err)
	}
	return nil
}

// sysctl writes a setting of the present namespace.
func sysctl(name, value string) error {
	f, err := os.OpenFile("/proc/sys/"+name, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
