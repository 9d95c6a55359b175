package netd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ends waits for a connection to be ended by netd, and says how long it took.
func ends(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	c.SetReadDeadline(began.Add(patience))
	if n, err := c.Read(make([]byte, 1)); err == nil || time.Since(began) > time.Second {
		t.Errorf("the connection goes on: %d bytes, %v after %s", n, err, time.Since(began))
	}
	return time.Since(began)
}

// goesOn checks that bytes still pass over a connection to an echo.
func goesOn(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if got, err := exchange(c, "still", 5); got != "still" {
		t.Errorf("the connection does not go on: %q %v", got, err)
	}
}

func TestPolicyChangesHoldAtOnce(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-live", []string{"site.test:7", "site.test:22", "203.0.113.10:9000", "udp:site.test:7"})
	echo, ssh := g.mustOpen("site.test", 7), g.mustOpen("site.test", 22)
	goesOn(t, echo)
	io.ReadFull(ssh, make([]byte, len("SSH-2.0-test\r\n")))
	literal, err := g.dial("tcp", "203.0.113.10:9000")
	must(t, err)
	defer literal.Close()
	packets, err := g.open("udp", "site.test", 7)
	must(t, err)
	defer packets.Close()
	goesOn(t, packets)

	g.policy("site.test:7")
	t.Logf("cut after %s", ends(t, ssh))
	ends(t, literal)
	goesOn(t, echo)
	packets.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if got, err := exchange(packets, "x", 1); err == nil {
		t.Errorf("packets still pass: %q", got)
	}
	g.expectRefusal("cut tcp site.test:22", "the rules changed", "rule site.test:22")
	g.expectRefusal("cut tcp 203.0.113.10:9000")
	g.expectRefusal("cut udp site.test:7")
	if c, err := g.open("tcp", "site.test", 22); err == nil {
		ends(t, c)
		c.Close()
	}

	g.policy() // nothing
	ends(t, echo)
	if addrs, err := g.lookup("site.test"); err == nil {
		t.Errorf("the name still has %v", addrs)
	}
	g.policy("site.test:22")
	again := g.mustOpen("site.test", 22)
	if got, err := exchange(again, "", 8); got != "SSH-2.0-" {
		t.Errorf("allowed again: %q %v", got, err)
	}
	if packets, err := g.udp(g.at("site.test", 7)); err == nil {
		t.Errorf("packets pass: %q", packets)
	}
	g.policy("udp:site.test:7")
	waitFor(t, "packets to pass again", func() bool { got, _ := g.udp(g.at("site.test", 7)); return got == "hello" })
}

// While everything is allowed nobody looks for whom a connection is. When that
// changes, what could be for anybody ends.
func TestUnseenConnectionsEndWhenRulesCome(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-open", nil)
	web, echo := g.mustOpen("cdn-good.test", 80), g.mustOpen("site.test", 7)
	goesOn(t, echo)
	if got, err := exchange(web, "GET / HTTP/1.1\r\nHost: cdn-evil.test\r\n\r\n", 15); got != "HTTP/1.1 200 OK" {
		t.Errorf("without rules: %q %v", got, err)
	}
	io.CopyN(io.Discard, web, 1)
	g.policy("cdn-good.test", "site.test:7")
	g.expectRefusal("cut tcp cdn-good.test:80")
	goesOn(t, echo)
	must(t, w.client.SetPolicy(t.Context(), g.id, nil))
	goesOn(t, echo)
}

// The name that a connection was let through for has to stay allowed too.
func TestNameSaidIsCheckedAgain(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-said", []string{"cdn-good.test", "cdn-evil.test"})
	c, err := g.dial("tcp", g.at("cdn-good.test", 80))
	must(t, err)
	defer c.Close()
	if got, err := exchange(c, "GET / HTTP/1.1\r\nHost: cdn-evil.test\r\n\r\n", 15); got != "HTTP/1.1 200 OK" {
		t.Fatalf("both are allowed: %q %v", got, err)
	}
	io.ReadAtLeast(c, make([]byte, 4096), 40)
	g.policy("cdn-good.test")
	ends(t, c)
}

// httpClient speaks HTTP from inside.
func (g *guest) httpClient() *http.Client {
	tr := &http.Transport{DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		return g.open(network, host, 80)
	}}
	g.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func TestWebWorks(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-web", []string{"site.test", "cdn-good.test"})
	client := g.httpClient()
	big := bytes.Repeat([]byte("x"), 3<<20)
	for range 3 { // on one connection
		for _, body := range []io.Reader{nil, bytes.NewReader(big), io.MultiReader(bytes.NewReader(big)), strings.NewReader("")} {
			r, err := http.NewRequest(http.MethodPost, "http://site.test/", body)
			must(t, err)
			resp, err := client.Do(r)
			must(t, err)
			got, err := io.ReadAll(resp.Body)
			must(t, err)
			resp.Body.Close()
			want := 0
			if body != nil {
				want = 3 << 20
			}
			if r.ContentLength == 0 && body != nil && r.Body == http.NoBody {
				want = 0
			}
			if !strings.Contains(string(got), fmt.Sprintf("host=site.test body=%d ", want)) {
				t.Errorf("got %q, want a body of %d", got, want)
			}
		}
	}
	// Another protocol on the same port, once the server agreed.
	c := g.mustOpen("site.test", 80)
	io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if got, err := exchange(c, "", 12); got != "HTTP/1.1 101" {
		t.Fatalf("upgrade: %q %v", got, err)
	}
	io.ReadAtLeast(c, make([]byte, 4096), 40)
	if got, err := exchange(c, "\x81\x05hello", 7); got != "\x81\x05hello" {
		t.Errorf("after the upgrade: %q %v", got, err)
	}
}

func TestStreamsAreWhole(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-bulk", []string{"site.test:*"})
	const size = 20 << 20
	h := sha256.New()
	io.CopyN(h, dataStream(), size)
	want := fmt.Sprintf("%x", h.Sum(nil))

	down := g.mustOpen("site.test", 9000)
	fmt.Fprintf(down, "%d\n", size)
	h.Reset()
	n, err := io.Copy(h, down)
	if got := fmt.Sprintf("%x", h.Sum(nil)); n != size || got != want {
		t.Errorf("down: %d bytes, %v", n, err)
	}

	// The end of what is sent passes on, and the answer comes back after it.
	up := g.mustOpen("site.test", 9001)
	io.CopyN(up, dataStream(), size)
	up.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(up)
	if string(got) != fmt.Sprintf("%d %s", size, want) {
		t.Errorf("up: %s %v", got, err)
	}

	var in, out int64
	waitFor(t, "the traffic to be counted", func() bool {
		in, out, err = w.client.Traffic(t.Context(), g.id)
		return err == nil && in >= size && out >= size
	})
	if in > size+4096 || out > size+4096 {
		t.Errorf("%d bytes in, %d out, for %d each", in, out, size)
	}
}

// Two sandboxes have the same address and do not meet; a stopped one is gone.
func TestDetach(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox("sbx-a", nil), w.sandbox("sbx-b", []string{"site.test:7"})
	ca, cb := a.mustOpen("site.test", 7), b.mustOpen("site.test", 7)
	goesOn(t, ca)
	goesOn(t, cb)
	must(t, w.client.Detach(t.Context(), "sbx-a"))
	must(t, w.client.Detach(t.Context(), "sbx-a"))
	must(t, w.client.Detach(t.Context(), "sbx-never"))
	goesOn(t, cb)
	if c, err := a.dial("tcp", "203.0.113.10:7"); err == nil {
		c.Close()
		t.Error("a sandbox that was detached still reaches something")
	}
	all, err := w.client.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "sbx-b" || all[0].Connections != 1 || all[0].Names != 1 {
		t.Errorf("%+v %v", all, err)
	}
	// Made again it is new: nothing is allowed.
	ns, err := w.client.Attach(t.Context(), "sbx-a")
	must(t, err)
	defer ns.Close()
	if all, _ := w.client.List(t.Context()); len(all) != 2 || all[0].Allow == nil || len(all[0].Allow) != 0 || all[0].Names != 0 {
		t.Errorf("made again: %+v", all)
	}
}

// What gVisor does to the namespace at a start is set right at the next one.
func TestAttachAgain(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-again", []string{"site.test:7"})
	c := g.mustOpen("site.test", 7)
	goesOn(t, c)
	before := g.at("site.test", 7)
	must(t, within(g.ns, flushAddresses))
	if c, err := g.dial("tcp", before); err == nil {
		c.Close()
		t.Fatal("there is an address still")
	}
	ns, err := w.client.Attach(t.Context(), g.id)
	must(t, err)
	defer ns.Close()
	one, _ := inode(g.ns)
	two, _ := inode(ns)
	if one != two {
		t.Error("the namespace is another one")
	}
	if after := g.at("site.test", 7); after != before {
		t.Errorf("the name means %s, and was %s", after, before)
	}
	goesOn(t, g.mustOpen("site.test", 7))
	must(t, within(g.ns, func() error { return removeLink(insideName) }))
	ns2, err := w.client.Attach(t.Context(), g.id)
	must(t, err)
	ns2.Close()
	goesOn(t, g.mustOpen("site.test", 7))
}
