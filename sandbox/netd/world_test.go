package netd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// world is a machine with netd on it, and an internet of its own: nothing of a
// test leaves these namespaces.
//
//	sandboxes -- netd in host (203.0.113.1, 2001:db8::1) -- inet (everything else)
type world struct {
	t      testing.TB
	dir    string
	host   *os.File
	inet   *internet
	client *Client
	args   []string
}

const (
	hostAddr = "203.0.113.1"
	dnsAddr  = "203.0.113.53"
)

// newWorld makes a world with a running daemon; args are for the daemon.
func newWorld(t testing.TB, args ...string) *world {
	t.Helper()
	w := newMachine(t, args...)
	w.start()
	t.Cleanup(w.end)
	return w
}

// newMachine makes a world without a daemon.
func newMachine(t testing.TB, args ...string) *world {
	t.Helper()
	needRoot(t)
	tmp, err := os.MkdirTemp("", "netd-test-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(tmp) })
	w := &world{t: t, dir: filepath.Join(tmp, "netd"), args: append([]string{"--resolver", dnsAddr + ":53"}, args...)}
	w.host = w.namespace(tmp, "host")
	inet := w.namespace(tmp, "inet")
	must(t, within(w.host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "up0", 65520
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "inet0", PeerNamespace: netlink.NsFd(inet.Fd())}); err != nil {
			return err
		}
		if err := addresses("up0", hostAddr+"/24", "2001:db8::1/64"); err != nil {
			return err
		}
		// What must not be reached is there: a way to it exists.
		for _, dst := range []string{"0.0.0.0/0", "::/0"} {
			gw := net.ParseIP("203.0.113.254")
			if strings.Contains(dst, ":") {
				gw = net.ParseIP("2001:db8::fe")
			}
			_, n, _ := net.ParseCIDR(dst)
			if err := netlink.RouteAdd(&netlink.Route{Dst: n, Gw: gw}); err != nil {
				return err
			}
		}
		return addresses("lo", "127.0.0.1/8")
	}))
	w.inet = newInternet(t, inet)
	must(t, within(w.host, func() error { return waitUp("up0") }))
	must(t, within(inet, func() error { return waitUp("inet0") }))
	return w
}

// namespace makes a namespace that ends with the test.
func (w *world) namespace(dir, name string) *os.File {
	w.t.Helper()
	path := filepath.Join(dir, name)
	ns, err := makeNamespace(path)
	must(w.t, err)
	w.t.Cleanup(func() {
		ns.Close()
		if err := dropNamespace(path); err != nil {
			w.t.Error(err)
		}
	})
	return ns
}

// addresses gives an interface of the present namespace addresses and raises it.
func addresses(name string, list ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range list {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// start runs Ensure as a server on this host would.
func (w *world) start() {
	w.t.Helper()
	exe, err := os.Executable()
	must(w.t, err)
	must(w.t, within(w.host, func() error {
		var err error
		w.client, err = Ensure(context.Background(), w.dir, exe, w.args...)
		return err
	}))
	w.client.start = nil // it would be started in the namespace of the test
}

// end ends the daemon and looks at what it leaves.
func (w *world) end() {
	t, ctx := w.t, context.Background()
	if all, err := w.client.List(ctx); err == nil {
		for _, s := range all {
			must(t, w.client.Detach(ctx, s.ID))
		}
		info, err := w.client.Ping(ctx)
		must(t, err)
		must(t, w.client.Stop(ctx))
		waitFor(t, "the daemon to end", func() bool { return dead(info.PID) })
	}
	log, err := os.ReadFile(folder(w.dir).logFile())
	must(t, err)
	if strings.Contains(string(log), "DATA RACE") || strings.Contains(string(log), "panic:") || strings.Contains(string(log), "level=ERROR") || t.Failed() {
		t.Errorf("the log of the daemon:\n%s", log)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), w.dir) {
		t.Errorf("mounts are left in %s", w.dir)
	}
}

// dead reports whether a process has ended, with all threads: the last one
// closes its sockets.
func dead(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return strings.Contains(string(b), ") Z ") && (err != nil || len(threads) <= 1)
}

// kill ends the daemon without a chance to say goodbye.
func (w *world) kill() {
	info, err := w.client.Ping(context.Background())
	must(w.t, err)
	must(w.t, unix.Kill(info.PID, unix.SIGKILL))
	waitFor(w.t, "the daemon to die", func() bool { return dead(info.PID) })
}

// waitFor waits until something is so.
func waitFor(t testing.TB, what string, so func() bool) {
	t.Helper()
	limit := time.After(15 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// guest is a sandbox: whatever runs in S.
type guest struct {
	t  testing.TB
	w  *world
	id string
	ns *os.File
}

// sandbox connects a sandbox; nil allows everything.
func (w *world) sandbox(id string, allow []string) *guest {
	w.t.Helper()
	ctx := context.Background()
	must(w.t, w.client.SetPolicy(ctx, id, allow))
	ns, err := w.client.Attach(ctx, id)
	must(w.t, err)
	w.t.Cleanup(func() { ns.Close() })
	return &guest{w.t, w, id, ns}
}

func (g *guest) policy(allow ...string) {
	g.t.Helper()
	must(g.t, g.w.client.SetPolicy(context.Background(), g.id, append([]string{}, allow...)))
}

const patience = 3 * time.Second

// dial connects from inside to an address.
func (g *guest) dial(network, addr string) (net.Conn, error) {
	var c net.Conn
	err := within(g.ns, func() error {
		var err error
		c, err = (&net.Dialer{Timeout: patience}).Dial(network, addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(patience))
	return c, nil
}

// lookup asks the name server inside.
func (g *guest) lookup(name string) ([]netip.Addr, error) { return g.ask("udp", resolver+":53", name) }

// ask asks any name server from inside.
func (g *guest) ask(network, server, name string) ([]netip.Addr, error) {
	r := net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(context.Context, string, string) (net.Conn, error) { return g.dial(network, server) }}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.LookupNetIP(ctx, "ip4", name+".")
}

// open resolves a name inside and connects to what it is there.
func (g *guest) open(network, name string, port int) (net.Conn, error) {
	addrs, err := g.lookup(name)
	if err != nil {
		return nil, err
	}
	return g.dial(network, netip.AddrPortFrom(addrs[0].Unmap(), uint16(port)).String())
}

// mustOpen opens a connection over which an answer has come already.
func (g *guest) mustOpen(name string, port int) net.Conn {
	g.t.Helper()
	c, err := g.open("tcp", name, port)
	must(g.t, err)
	g.t.Cleanup(func() { c.Close() })
	return c
}

// refusals returns all that is known of a sandbox.
func (g *guest) refusals() []Refusal {
	g.t.Helper()
	all, _, _, err := g.w.client.Refusals(context.Background(), 0, 0)
	must(g.t, err)
	var mine []Refusal
	for _, r := range all {
		if r.Sandbox == g.id {
			mine = append(mine, r)
		}
	}
	return mine
}

// expectRefusal waits for a refusal with these words in it.
func (g *guest) expectRefusal(words ...string) {
	g.t.Helper()
	var last []Refusal
	found := false
	limit := time.Now().Add(patience)
	for !found && time.Now().Before(limit) {
		all, _, _, err := g.w.client.Refusals(context.Background(), 0, 0)
		must(g.t, err)
		last = all
		for _, r := range all {
			line := fmt.Sprintf("%s %s %s %s: %s; rule %s", r.Sandbox, r.Kind, r.Proto, r.Target, r.Reason, r.Rule)
			has := r.Sandbox == g.id
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			found = found || has
		}
	}
	if !found {
		g.t.Errorf("no refusal with %q among %d, the last: %+v", words, len(last), last[max(0, len(last)-5):])
	}
}

// exchange writes something and reads up to n bytes of the answer.
func exchange(c net.Conn, text string, n int) (string, error) {
	if text != "" {
		if _, err := io.WriteString(c, text); err != nil {
			return "", err
		}
	}
	b := make([]byte, n)
	k, err := io.ReadFull(c, b)
	if k > 0 && (errors.Is(err, io.ErrUnexpectedEOF) || err == nil) {
		return string(b[:k]), nil
	}
	if err == nil {
		err = io.EOF
	}
	return string(b[:k]), err
}
