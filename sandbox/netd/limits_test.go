package netd

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func addDummyPair() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = insideName
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other"})
}

// holds is what the daemon holds right now.
type holds struct{ goroutines, fds int }

func (w *world) holds() holds {
	info, err := w.client.Ping(w.t.Context())
	must(w.t, err)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", info.PID))
	must(w.t, err)
	return holds{info.Goroutines, len(fds)}
}

// comesBack waits until the daemon holds no more than it did.
func (w *world) comesBack(before holds) {
	w.t.Helper()
	var now holds
	defer func() { w.t.Logf("before %+v, now %+v", before, now) }()
	waitFor(w.t, "the daemon to let go", func() bool {
		now = w.holds()
		// Idle pipes are kept.
		return now.goroutines <= before.goroutines+2 && now.fds <= before.fds+2*idlePipes+8
	})
}

func TestManyConnections(t *testing.T) {
	w := newWorld(t, "--connections", "600", "--idle", "1s")
	g := w.sandbox("sbx-many", []string{"site.test:7"})
	addr := g.at("site.test", 7)
	warm := g.mustOpen("site.test", 7)
	goesOn(t, warm)
	before := w.holds()
	open := make([]net.Conn, 500)
	must(t, within(g.ns, func() error {
		for i := range open {
			var err error
			if open[i], err = net.DialTimeout("tcp", addr, patience); err != nil {
				return err
			}
		}
		return nil
	}))
	var wg sync.WaitGroup
	for _, c := range open {
		wg.Go(func() { goesOn(t, c) })
	}
	wg.Wait()
	t.Logf("500 connections: %+v", w.holds())
	// More than are allowed: what was open goes on.
	must(t, within(g.ns, func() error {
		for range 200 {
			c, err := net.DialTimeout("tcp", addr, patience)
			if err == nil {
				defer c.Close()
			}
		}
		return nil
	}))
	g.expectRefusal("too many connections")
	goesOn(t, open[499])
	for _, c := range open {
		c.Close()
	}
	w.comesBack(before)
	goesOn(t, warm)
}

// A scan shows nothing, and does not flood whoever reads about it.
func TestPortScan(t *testing.T) {
	w := newWorld(t)
	g, calm := w.sandbox("sbx-scan", []string{"site.test:7"}), w.sandbox("sbx-calm", nil)
	c := calm.mustOpen("site.test", 7)
	calm.tcp("10.9.0.1:80", "x", 1)
	before := w.holds()
	addr, _, _ := net.SplitHostPort(g.at("site.test", 7))
	must(t, within(g.ns, func() error {
		for port := 1; port <= 1500; port++ {
			if port == 7 || port == 53 {
				continue
			}
			c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", addr, port), patience)
			if err != nil {
				continue
			}
			c.SetDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 {
				t.Errorf("port %d answers", port)
			}
			c.Close()
		}
		return nil
	}))
	if n := len(g.refusals()); n == 0 || n > keptRefusals/2 {
		t.Errorf("%d refusals of a scan are told one by one", n)
	}
	g.expectRefusal("too many to record each") // within a tick of the daemon
	calm.expectRefusal("10.9.0.1:80")
	goesOn(t, c)
	w.comesBack(before)
}

func TestManyPacketsAndQuestions(t *testing.T) {
	w := newWorld(t, "--flows", "50", "--idle", "300ms")
	g := w.sandbox("sbx-udp", []string{"udp:site.test:7", "*.many.test"})
	addr := g.at2("site.test")
	before := w.holds()
	must(t, within(g.ns, func() error {
		for range 300 {
			c, err := net.Dial("udp", addr+":7")
			if err != nil {
				return err
			}
			defer c.Close()
			io.WriteString(c, "x")
		}
		return nil
	}))
	g.expectRefusal("too many UDP flows")
	waitFor(t, "new flows to pass again", func() bool { got, _ := g.udp(addr + ":7"); return got == "hello" })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 25 {
				if _, err := g.lookup(fmt.Sprintf("n%d-%d.many.test", i, k)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := w.client.List(t.Context()); err != nil || all[0].Names != 201 {
		t.Errorf("%+v %v", all, err)
	}
	w.comesBack(before)
}

// at2 is the address of a name alone.
func (g *guest) at2(name string) string {
	host, _, _ := net.SplitHostPort(g.at(name, 1))
	return host
}
