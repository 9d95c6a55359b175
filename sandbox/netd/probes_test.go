package netd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// web asks for a page from inside: of addr, saying sni and host. Without sni it
// is plain HTTP.
func (g *guest) web(addr, sni, host string) (string, error) {
	c, err := g.dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if sni != "" {
		t := tls.Client(c, &tls.Config{ServerName: strings.TrimPrefix(sni, "-"), InsecureSkipVerify: true})
		if err := t.Handshake(); err != nil {
			return "", err
		}
		c = t
	}
	return exchange(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n", 4096)
}

// at resolves a name inside.
func (g *guest) at(name string, port int) string {
	addrs, err := g.lookup(name)
	if err != nil {
		g.t.Errorf("%s has no address inside: %v", name, err)
		return "0.0.0.0:1"
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(port)).String()
}

func (g *guest) udp(addr string) (string, error) {
	c, err := g.dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func (g *guest) tcp(addr, say string, n int) (string, error) {
	c, err := g.dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, say, n)
}

// raw sends a packet of our own making and reports whether anything came back.
func (g *guest) raw(proto int, packet []byte, to [4]byte) (string, error) {
	answer := ""
	err := within(g.ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if proto == unix.IPPROTO_RAW {
			return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to})
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300000}); err != nil {
			return err
		}
		if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to}); err != nil {
			return err
		}
		b := make([]byte, 256)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return err
		}
		if n > 20 && b[20] == 0 {
			answer = "echo reply"
		}
		return fmt.Errorf("icmp type %d code %d", b[20], b[21])
	})
	return answer, err
}

// TestProbes is the list of what a sandbox may try, from the study that the
// design comes from.
func TestProbes(t *testing.T) {
	w := newWorld(t, "--forbid", "203.0.113.99/32", "--handshake", "500ms")
	var hostService net.Listener
	must(t, within(w.host, func() (err error) {
		hostService, err = net.Listen("tcp", ":8080")
		return err
	}))
	defer hostService.Close()
	g := w.sandbox("sbx-probe", []string{"site.test:1-1023", "site.test:8443", "*.wild.test:443", "v6.test:443", "cdn-good.test", "203.0.113.10:9000", "0.0.0.0/0:8080",
		"[::/0]:8080", "udp:site.test:7", "to-private.test:*", "to-metadata.test:*", "to-host.test:*", "to-loopback.test:*", "to-mapped.test:*", "to-host6.test:*", "to-nat64.test:*", "half-private.test:7"})
	other := w.sandbox("sbx-other", nil)
	listenInside(t, other, "10.0.2.15:7777")
	echo := func(addr string) func() (string, error) {
		return func() (string, error) { return g.tcp(addr, "hello", 5) }
	}
	named := func(name string, port int) func() (string, error) {
		return func() (string, error) { return g.tcp(g.at(name, port), "hello", 5) }
	}
	web := func(name string, port int, sni, host string) func() (string, error) {
		return func() (string, error) { return g.web(g.at(name, port), sni, host) }
	}
	look := func(name string) func() (string, error) {
		return func() (string, error) { a, err := g.lookup(name); return fmt.Sprint(a), err }
	}
	for _, p := range []struct {
		name  string
		do    func() (string, error)
		want  string // in what comes back; empty: nothing may
		event []string
	}{
		{"allowed name, 443", web("site.test", 443, "site.test", "site.test"), "sni=site.test host=site.test", nil},
		{"allowed name, 80", web("site.test", 80, "", "site.test"), "host=site.test", nil},
		{"allowed name, ssh", func() (string, error) { return g.tcp(g.at("site.test", 22), "", 8) }, "SSH-2.0-", nil},
		{"allowed name, other TLS port", web("site.test", 8443, "site.test", "site.test"), "sni=site.test", nil},
		{"wildcard", web("a.wild.test", 443, "a.wild.test", "a.wild.test"), "sni=a.wild.test", nil},
		{"name with IPv6 only", web("v6.test", 443, "v6.test", "v6.test"), "sni=v6.test", nil},
		{"name not allowed", look("evil.test"), "", []string{"dns evil.test", "rule evil.test"}},
		{"existing name not allowed", look("other.test"), "", []string{"dns other.test"}},
		{"apex of a wildcard", look("wild.test"), "", []string{"dns wild.test"}},
		{"another name server, allowed name", func() (string, error) { a, err := g.ask("udp", "8.8.8.8:53", "site.test"); return fmt.Sprint(a), err }, "198.18.", nil},
		{"another name server, other name", func() (string, error) { a, err := g.ask("udp", dnsAddr+":53", "other.test"); return fmt.Sprint(a), err }, "", nil},
		{"another name server over TCP", func() (string, error) { a, err := g.ask("tcp", "1.1.1.1:53", "site.test"); return fmt.Sprint(a), err }, "198.18.", nil},
		{"port not in the rule", named("site.test", 9001), "", []string{"site.test:9001", "rule site.test:9001"}},
		{"shared address, SNI of another tenant", web("cdn-good.test", 443, "cdn-evil.test", "cdn-evil.test"), "", []string{"cdn-good.test:443", "cdn-evil.test"}},
		{"shared address, no SNI", web("cdn-good.test", 443, "-", "cdn-evil.test"), "", []string{"names no server"}},
		{"shared address, not TLS on 443", web("cdn-good.test", 443, "", "cdn-evil.test"), "", []string{"not TLS"}},
		{"shared address, silence on 443", func() (string, error) { return g.tcp(g.at("cdn-good.test", 443), "", 1) }, "", []string{"did not say in time"}},
		{"shared address, Host of another tenant", web("cdn-good.test", 80, "", "cdn-evil.test"), "", []string{"another host (cdn-evil.test)", "rule cdn-evil.test:80"}},
		{"shared address, Host of another tenant in the second request", func() (string, error) { return secondRequest(g) }, "", []string{"another host (cdn-evil.test)"}},
		{"shared address, SNI of another tenant on another port", web("site.test", 8443, "cdn-evil.test", "x"), "", []string{"site.test:8443"}},
		{"address of a name that is not allowed, with allowed SNI", func() (string, error) { return g.web("203.0.113.20:443", "site.test", "site.test") }, "", []string{"203.0.113.20:443"}},
		{"address of an allowed name", func() (string, error) { return g.web("203.0.113.10:443", "site.test", "site.test") }, "", []string{"rule 203.0.113.10:443"}},
		{"address with a rule", func() (string, error) { return g.tcp("203.0.113.10:9000", "5\n", 5) }, dataPrefix(5), nil},
		{"host, its address outside", echo(hostAddr + ":8080"), "", []string{"an address of the host"}},
		{"forbidden by the operator", echo("203.0.113.99:8080"), "", []string{"does not let sandboxes"}},
		{"first hop", echo("10.0.2.2:8080"), "", []string{"10.0.2.2:8080"}},
		{"port of the proxy", echo(fmt.Sprintf("10.0.2.2:%d", tproxyPort)), "", []string{"10.0.2.2:15001"}},
		{"a bridge of the host", echo("172.17.0.1:8080"), "", []string{"a private network"}},
		{"metadata", echo("169.254.169.254:80"), "", []string{"link-local"}},
		{"metadata as a mapped address", echo("[::ffff:169.254.169.254]:80"), "", []string{"link-local"}},
		{"10/8", echo("10.9.0.1:8080"), "", []string{"a private network"}},
		{"172.16/12", echo("172.16.9.1:8080"), "", []string{"a private network"}},
		{"192.168/16", echo("192.168.9.1:8080"), "", []string{"a private network"}},
		{"loopback of the host", echo("127.0.0.1:8080"), "", nil},
		{"IPv6 address", echo("[2001:db8::10]:8080"), "", nil},
		{"IPv6 metadata", echo("[fd00:ec2::254]:80"), "", nil},
		{"NAT64", echo("[64:ff9b::a09:1]:8080"), "", nil},
		{"another sandbox", echo("10.0.2.16:7777"), "", nil},
		{"an address without a name", echo("198.18.99.99:443"), "", []string{"an address without a name"}},
		{"name that leads to a private address", named("to-private.test", 7), "", []string{"leads to 10.9.0.1"}},
		{"name that leads to metadata", named("to-metadata.test", 7), "", []string{"leads to 169.254.169.254"}},
		{"name that leads to the host", named("to-host.test", 8080), "", []string{"an address of the host"}},
		{"name that leads to the host by IPv6", named("to-host6.test", 8080), "", []string{"an address of the host"}},
		{"name that leads to loopback", named("to-loopback.test", 7), "", []string{"leads to 127.0.0.1"}},
		{"name that leads to a mapped address", named("to-mapped.test", 7), "", []string{"leads to 10.9.0.1"}},
		{"name that leads through NAT64", named("to-nat64.test", 7), "", []string{"leads to 64:ff9b"}},
		{"name that leads to both", named("half-private.test", 7), "hello", nil},
		{"UDP with a rule", func() (string, error) { return g.udp(g.at("site.test", 7)) }, "hello", nil},
		{"UDP without", func() (string, error) { return g.udp("203.0.113.10:7") }, "", []string{"udp 203.0.113.10:7", "rule udp:203.0.113.10:7"}},
		{"QUIC", func() (string, error) { return g.udp(g.at("site.test", 443)) }, "", []string{"udp site.test:443"}},
		{"ping", func() (string, error) { return g.raw(unix.IPPROTO_ICMP, ping(), [4]byte{203, 0, 113, 10}) }, "", []string{"icmp 203.0.113.10"}},
		{"forged source", func() (string, error) { return g.raw(unix.IPPROTO_RAW, forged(), [4]byte{203, 0, 113, 10}) }, "", []string{"source address 10.0.2.99 is forged"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			g.t = t
			defer func() { g.t = w.t }()
			got, err := p.do()
			switch {
			case p.want == "" && err == nil && got != "":
				t.Errorf("reached: %q", got)
			case p.want != "" && (err != nil || !strings.Contains(got, p.want)):
				t.Errorf("got %q and %v, want %q", got, err, p.want)
			}
			if p.event != nil {
				g.expectRefusal(p.event...)
			}
		})
	}
	// All of it is there to be reached, so it was netd that refused.
	for _, addr := range []string{"169.254.169.254:80", "10.9.0.1:8080", "172.16.9.1:8080", "192.168.9.1:8080", "203.0.113.20:443", "[2001:db8::10]:8080", "[fd00:ec2::254]:80", "[64:ff9b::a09:1]:8080", hostAddr + ":8080"} {
		must(t, within(w.host, func() error {
			c, err := net.DialTimeout("tcp", addr, patience)
			if err == nil {
				c.Close()
			}
			return err
		}))
	}
}

// listenInside has somebody listen in a sandbox.
func listenInside(t *testing.T, g *guest, addr string) {
	t.Helper()
	must(t, within(g.ns, func() error {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
}

// secondRequest asks the allowed tenant, and then another on the same
// connection; it returns what that says.
func secondRequest(g *guest) (string, error) {
	c, err := g.dial("tcp", g.at("cdn-good.test", 80))
	if err != nil {
		return "", err
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: cdn-good.test\r\n\r\n")
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), "host=cdn-good.test") {
		g.t.Errorf("the first request: %q %v", b[:n], err)
	}
	return exchange(c, "GET / HTTP/1.1\r\nHost: cdn-evil.test\r\n\r\n", 4096)
}

func dataPrefix(n int) string {
	b := make([]byte, n)
	io.ReadFull(dataStream(), b)
	return string(b)
}

// ping is an ICMP echo request.
func ping() []byte { return []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} }

// forged is a UDP packet that claims to come from somebody else.
func forged() []byte {
	p := make([]byte, 28)
	p[0], p[3], p[8], p[9] = 0x45, 28, 64, unix.IPPROTO_UDP
	copy(p[12:], []byte{10, 0, 2, 99, 203, 0, 113, 10})
	p[21], p[23], p[25] = 9, 7, 8
	return p
}

// Whoever asks for something else than an address is told that there is none,
// and not that the name does not exist.
func TestOtherQuestions(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-dns", []string{"site.test"})
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return g.dial("udp", resolver+":53") }}
	addrs, err := r.LookupNetIP(t.Context(), "ip", "site.test.")
	if err != nil || len(addrs) != 1 || !addrs[0].Unmap().Is4() {
		t.Errorf("addresses of both families: %v %v", addrs, err)
	}
	again, err := g.lookup("SITE.test")
	if err != nil || again[0] != addrs[0].Unmap() {
		t.Errorf("the address in capitals is %v %v", again, err)
	}
	names, err := r.LookupAddr(t.Context(), addrs[0].Unmap().String())
	if err != nil || len(names) != 1 || names[0] != "site.test." {
		t.Errorf("the name of the address: %v %v", names, err)
	}
	txt, err := r.LookupTXT(t.Context(), "site.test.")
	if len(txt) != 0 {
		t.Errorf("TXT: %v %v", txt, err)
	}
	var d *net.DNSError
	if _, err := g.lookup("missing.site.test"); !errors.As(err, &d) || !d.IsNotFound {
		t.Errorf("a name that does not exist: %v", err)
	}
	if _, err := os.Stat(folder(w.dir).names("sbx-dns")); err != nil {
		t.Error(err)
	}
}
