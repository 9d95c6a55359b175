package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// testEscapeSockets holds that a sandbox without a network has a loopback of
// its own and nothing else: no socket of another kind, no address of the host,
// of the neighbourhood or of a cloud's metadata, no name in the host's
// abstract namespace, no neighbour.
func testEscapeSockets(t *testing.T, e *env) {
	reached := &atomic.Int64{}
	abstract := "sandgate-" + newID()
	tcp := serve(t, reached, "tcp", ":0")
	udp := serve(t, reached, "udp", ":0")
	serve(t, reached, "unix", "@"+abstract)
	serve(t, reached, "unixgram", "@"+abstract+"d")

	hosts := []string{"127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254", "192.0.2.1", "2001:db8::1", "10.0.0.1", "172.17.0.1", "192.168.0.1", "100.64.0.1",
		"224.0.0.1", "255.255.255.255", "ff02::1%lo", "0.0.0.0", "::", "::ffff:127.0.0.1"}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses[:min(len(addresses), 20)] {
		if prefix, ok := a.(*net.IPNet); ok && !prefix.IP.IsLoopback() && !prefix.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, prefix.IP.String())
		}
	}
	var asked []string
	for _, host := range hosts {
		asked = append(asked, "tcp/"+net.JoinHostPort(host, tcp), "udp/"+net.JoinHostPort(host, udp))
	}
	asked = append(asked, "tcp/169.254.169.254:80", "udp/8.8.8.8:53", "udp/224.0.0.251:5353", "unix/@"+abstract, "unixgram/@"+abstract+"d",
		"unix//var/run/docker.sock", "unix//run/systemd/private", "unix//run/dbus/system_bus_socket")

	e.siege(t, func(b *box) {
		other := e.boot(t)
		// A neighbour's loopback and abstract names are not ours either.
		other.background(t, "nc -l -p 7002 -e cat & echo ready; wait")
		for _, user := range []string{"", "user"} {
			results := tries(b.escape(t, user, append([]string{"sockets", "tcp/127.0.0.1:7002"}, asked...)...))
			for _, name := range slices.Sorted(maps.Keys(results)) {
				switch result := results[name]; {
				case result != "granted":
				case strings.HasPrefix(name, "udp/127.") || strings.HasPrefix(name, "udp/[::") || strings.HasPrefix(name, "udp/0.0.0.0"):
					// Sent, to a loopback where nobody listens.
				default:
					t.Errorf("%s as %q: %s", name, user, result)
				}
			}
		}
		if n := reached.Load(); n > 0 {
			t.Errorf("the host was reached %d times", n)
		}
		if got := b.try(t, "cat /proc/net/unix /proc/net/tcp /proc/net/udp /proc/net/arp").stdout; strings.Contains(got, abstract) {
			t.Errorf("a sandbox sees the host's sockets: %q", got)
		}
		for _, script := range []string{
			"ip link add link lo name e0 type macvlan", "ip link add e0 type veth", "ip addr add 192.0.2.7/24 dev lo && ip route add default via 192.0.2.1",
			"ip route add default dev lo", "ip tuntap add tun0 mode tun", "echo 1 >/proc/sys/net/ipv4/ip_forward && [ $(cat /proc/sys/net/ipv4/ip_forward) = 7 ]",
		} {
			b.refuses(t, script)
		}
	})
}

// serve listens on the host, counts whoever comes, and returns the port.
func serve(t *testing.T, reached *atomic.Int64, network, address string) string {
	t.Helper()
	if network == "udp" || network == "unixgram" {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				n, _, err := c.ReadFrom(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if strings.Contains(string(b[:n]), "from the sandbox") {
					reached.Add(1)
				}
			}
		}()
		_, port, _ := net.SplitHostPort(c.LocalAddr().String())
		return port
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_, _ = fmt.Fprintln(c, "you are out")
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
