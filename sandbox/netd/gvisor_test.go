package netd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	pid1 "github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/gvisor"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

// tenant is a sandbox of gVisor that is connected.
type tenant struct {
	t    *testing.T
	d    *gvisor.Driver
	id   string
	conn *pid1.Conn
}

func (w *world) tenant(t *testing.T, id string) *tenant {
	t.Helper()
	dir, err := os.MkdirTemp("", "netd-gvisor-")
	must(t, err)
	d, err := gvisor.New(gvisor.Config{StateDir: filepath.Join(dir, "gvisor"), Executable: gvisortest.Executable(t), Network: w.client})
	must(t, err)
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
		d.Close()
		os.RemoveAll(dir)
	})
	caps, err := d.Capabilities(t.Context())
	must(t, err)
	if s := caps.Support[driver.FeatureNetwork]; !s.OK {
		t.Skip("gVisor cannot be connected here: " + s.Reason)
	}
	must(t, d.Create(t.Context(), driver.Spec{ID: id, Rootfs: drivertest.BusyboxRootfs(t), Guest: driver.Guest{Path: drivertest.BuildGuest(t)}, Network: true}))
	must(t, d.Start(t.Context(), id))
	n := &tenant{t: t, d: d, id: id}
	n.connect()
	return n
}

func (n *tenant) connect() {
	n.t.Helper()
	stream, err := n.d.Dial(n.t.Context(), n.id)
	must(n.t, err)
	n.conn, err = pid1.Connect(n.t.Context(), stream)
	must(n.t, err)
	conn := n.conn
	n.t.Cleanup(func() { conn.Close() })
}

// sh runs a script in the sandbox and returns all that it printed.
func (n *tenant) sh(script string) string {
	n.t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	p, err := n.conn.Start(ctx, pid1.Command{ID: fmt.Sprintf("c%d", time.Now().UnixNano()), Args: []string{"sh", "-c", script + " 2>&1"}, NoStdin: true}, pid1.Output{Stdout: &out, Stderr: &out})
	must(n.t, err)
	defer p.Close()
	_, err = p.Wait(ctx)
	must(n.t, err)
	return out.String()
}

// TestGVisor runs the probes that matter from a sandbox with a network stack of
// its own, through a pause and another daemon.
func TestGVisor(t *testing.T) {
	w := newWorld(t)
	id := "sbx-gvisor"
	must(t, w.client.SetPolicy(t.Context(), id, []string{"site.test", "site.test:7", "site.test:9000", "cdn-good.test", "to-metadata.test:80"}))
	n := w.tenant(t, id)
	g := &guest2{n}
	g.reaches(page("site.test", "site.test"), "host=site.test")
	g.reaches("cat /etc/resolv.conf", "nameserver "+resolver)
	g.reaches("nslookup site.test", "198.18.0.")
	g.reaches("echo 1000000 | nc -w 5 site.test 9000 | wc -c", "1000000")
	for _, script := range []string{
		page("other.test", "other.test"),
		page("169.254.169.254", "site.test"),
		page("to-metadata.test", "to-metadata.test"),
		page("10.9.0.1", "site.test"),
		page("203.0.113.10", "site.test"),
		page(hostAddr, "site.test"),
		page("cdn-good.test", "cdn-evil.test"),
		page("2001:db8::10", "site.test"),
		"echo x | nc -w 2 10.0.2.2 15001",
		"nslookup site.test 203.0.113.53 | grep 203.0.113.10 && echo host=",
		"ping -c 1 -W 1 203.0.113.10 | grep ttl",
	} {
		g.refused(script)
	}
	sandbox := &guest{t, w, id, nil}
	sandbox.expectRefusal("dns other.test")
	sandbox.expectRefusal("169.254.169.254:80")
	sandbox.expectRefusal("cdn-good.test:80", "cdn-evil.test")

	// A connection that lives on, over a new daemon, and ends with its rule.
	addr := strings.Fields(n.sh("nslookup site.test | grep 198.18"))
	c, err := n.conn.Dial(t.Context(), "tcp", addr[len(addr)-1]+":7")
	must(t, err)
	defer c.Close()
	say := func() error {
		if _, err := io.WriteString(c, "still"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	must(t, say())
	w.takeover()
	must(t, say())
	must(t, w.client.SetPolicy(t.Context(), id, []string{"site.test"}))
	if err := say(); err == nil {
		t.Error("a connection goes on without its rule")
	}

	// What an address means is the same after a pause, and after a start.
	n.conn.Close()
	must(t, n.d.Suspend(t.Context(), id))
	r, err := n.d.Resume(t.Context(), id)
	must(t, err)
	if !r.Memory {
		t.Errorf("resumed without memory: %s", r.Reason)
	}
	n.connect()
	g.reaches(page("site.test", "site.test"), "host=site.test")
	again := strings.Fields(n.sh("nslookup site.test | grep 198.18"))
	if again[len(again)-1] != addr[len(addr)-1] {
		t.Errorf("site.test is %v, and was %v", again, addr)
	}
	n.conn.Close()
	must(t, n.d.Stop(t.Context(), id, 0))
	must(t, n.d.Start(t.Context(), id))
	n.connect()
	g.reaches(page("site.test", "site.test"), "host=site.test")
}

// page is a script that asks for a page.
func page(addr, host string) string {
	return fmt.Sprintf("printf 'GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' | nc -w 3 %s 80", host, addr)
}

// guest2 asks for answers of scripts.
type guest2 struct{ *tenant }

func (g *guest2) reaches(script, want string) {
	g.t.Helper()
	if got := g.sh(script); !strings.Contains(got, want) {
		g.t.Errorf("%s: %q, want %q", script, got, want)
	}
}

func (g *guest2) refused(script string) {
	g.t.Helper()
	if got := g.sh(script); strings.Contains(got, "host=") || strings.Contains(got, "ttl") || got == "x\n" || strings.Contains(got, "SSH-") {
		g.t.Errorf("%s: reached: %q", script, got)
	}
}
