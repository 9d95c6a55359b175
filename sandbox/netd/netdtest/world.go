package netdtest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// What there is in a World. Each of these addresses answers on port 80 with
// "host=" and the host that was asked for; the daemon is who refuses.
const (
	Resolver = "203.0.113.53:53" // for the daemon
	Site     = "site.test"       // a name, at Address
	Other    = "other.test"      // another name, at Address
	Address  = "203.0.113.10"
	Private  = "10.9.0.1"
	Metadata = "169.254.169.254"
)

const hostAddress = "203.0.113.1"

// World is a machine for a daemon to run on, and an internet. Both are network
// namespaces, which end with the test.
type World struct{ host, inet *os.File }

// New makes a world. It takes root.
func New(t testing.TB) *World {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not on this kind of machine: network namespaces are made as root")
	}
	w := &World{host: newNamespace(t), inet: newNamespace(t)}
	must(t, within(w.host, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "inet0", PeerNamespace: netlink.NsFd(w.inet.Fd())}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("make a pair: %w", err)
		}
		return errors.Join(up("lo"), up("up0", hostAddress+"/24"))
	}))
	must(t, within(w.inet, func() error {
		return errors.Join(up("lo", Metadata+"/32", Private+"/32"), up("inet0", "203.0.113.254/24", Address+"/24", "203.0.113.53/24"))
	}))
	// What must not be reached is there: a way to it exists.
	must(t, within(w.host, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("203.0.113.254")}) }))
	w.serve(t)
	return w
}

// Variable in the environment of a test program says that it runs on the
// machine of a World.
const Variable = "SANDGATE_TEST_WORLD"

// Do runs f on this machine: what it starts, and the sockets it opens, belong
// to it.
func (w *World) Do(f func() error) error { return within(w.host, f) }

func (w *World) serve(t testing.TB) {
	var web net.Listener
	var names net.PacketConn
	must(t, within(w.inet, func() (err error) {
		if web, err = net.Listen("tcp4", ":80"); err == nil {
			names, err = net.ListenPacket("udp4", Resolver)
		}
		return err
	}))
	var wg sync.WaitGroup
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "host="+r.Host) })}
	wg.Go(func() { _ = s.Serve(web) }) // until it is closed
	wg.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := names.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := resolve(buf[:n]); answer != nil {
				_, _ = names.WriteTo(answer, from) // whoever asks asks again
			}
		}
	})
	t.Cleanup(func() {
		s.Close()
		names.Close()
		wg.Wait()
	})
}

// resolve knows Site and Other.
func resolve(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	h.Response, h.RecursionAvailable = true, true
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{q}}
	switch strings.ToLower(q.Name.String()) {
	case Site + ".", Other + ".":
		if q.Type == dnsmessage.TypeA {
			head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
			m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(Address).To4())}}}
		}
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// up raises a device of the present namespace and gives it addresses.
func up(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return netlink.LinkSetUp(link)
}

func newNamespace(t testing.TB) *os.File {
	t.Helper()
	var ns *os.File
	must(t, onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	}))
	t.Cleanup(func() { ns.Close() })
	return ns
}

func within(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
