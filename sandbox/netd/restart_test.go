package netd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func flushAddresses() error {
	link, err := netlink.LinkByName(insideName)
	if err != nil {
		return err
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	return nil
}

// takeover starts a daemon that takes the place of the one that runs.
func (w *world) takeover() {
	w.t.Helper()
	exe, err := os.Executable()
	must(w.t, err)
	before, err := w.client.Ping(context.Background())
	must(w.t, err)
	must(w.t, within(w.host, func() error {
		return spawn(context.Background(), folder(w.dir), exe, append([]string{"--takeover"}, w.args...))
	}))
	after, err := w.client.Ping(context.Background())
	must(w.t, err)
	if before.PID == after.PID {
		w.t.Error("the old daemon still answers")
	}
	waitFor(w.t, "the old daemon to end", func() bool { return dead(before.PID) })
}

func TestDeathFailsClosed(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-death", []string{"site.test:7", "203.0.113.10:9000"})
	c := g.mustOpen("site.test", 7)
	goesOn(t, c)
	addr := g.at("site.test", 7)
	w.kill()
	ends(t, c)
	for _, a := range []string{addr, "203.0.113.10:9000", "203.0.113.10:7", "169.254.169.254:80"} {
		if c, err := g.dial("tcp", a); err == nil {
			c.Close()
			t.Errorf("%s is reached while nobody decides", a)
		}
	}
	if addrs, err := g.lookup("site.test"); err == nil {
		t.Errorf("somebody resolves names: %v", addrs)
	}
	if _, err := w.client.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a client is told %v", err)
	}

	w.start()
	// The same namespace, the same policy, the same meaning of addresses.
	c2, err := g.dial("tcp", addr)
	must(t, err)
	defer c2.Close()
	goesOn(t, c2)
	if now := g.at("site.test", 7); now != addr {
		t.Errorf("the name means %s, and was %s", now, addr)
	}
	if c, err := g.dial("tcp", "203.0.113.10:7"); err == nil {
		ends(t, c)
		c.Close()
	}
	ns, err := w.client.Attach(t.Context(), g.id)
	must(t, err)
	ns.Close()
}

// A client of Ensure starts the daemon when it finds it gone.
func TestClientStartsDaemon(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-self", []string{"site.test:7"})
	exe, err := os.Executable()
	must(t, err)
	w.kill()
	must(t, within(w.host, func() error {
		c, err := Ensure(context.Background(), w.dir, exe, w.args...)
		if err != nil {
			return err
		}
		w.client = c
		w.kill()
		_, err = c.Ping(context.Background())
		return err
	}))
	w.client.start = nil
	goesOn(t, g.mustOpen("site.test", 7))
	// One that runs, and is of this build, is left alone.
	before, err := w.client.Ping(t.Context())
	must(t, err)
	w.start()
	if after, err := w.client.Ping(t.Context()); err != nil || after.PID != before.PID {
		t.Errorf("%+v became %+v, %v", before, after, err)
	}
}

func TestTakeoverKeepsConnections(t *testing.T) {
	w := newWorld(t, "--handshake", "1m")
	g := w.sandbox("sbx-take", []string{"site.test:*", "site.test", "udp:site.test:7"})
	// The last of both streams comes when all takeovers are over, however long
	// these take.
	const size, last = 400 << 20, 64 << 20
	over := make(chan struct{})
	finish := sync.OnceFunc(func() { close(over) })
	t.Cleanup(finish)
	h := sha256.New()
	io.CopyN(h, dataStream(), size)
	want := fmt.Sprintf("%x", h.Sum(nil))

	echo := g.mustOpen("site.test", 7)
	goesOn(t, echo)
	packets, err := g.open("udp", "site.test", 7)
	must(t, err)
	defer packets.Close()
	goesOn(t, packets)
	// A request that has arrived in part, and one that asked for an upgrade.
	half, ws := g.mustOpen("site.test", 80), g.mustOpen("site.test", 80)
	io.WriteString(half, "POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 10\r\n\r\n1234")
	io.WriteString(ws, "GET / HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	io.ReadAtLeast(ws, make([]byte, 4096), 80)
	started := g.mustOpen("site.test", 80)
	io.WriteString(started, "GET / HTTP/1.1\r\nHo")
	// One end that does not read, so that bytes are stuck in between.
	stuck := g.mustOpen("site.test", 9000)
	fmt.Fprintf(stuck, "%d\n", 64<<20)

	down := g.mustOpen("site.test", 9000)
	down.SetDeadline(time.Now().Add(3 * time.Minute))
	fmt.Fprintf(down, "%d\n", size)
	up := g.mustOpen("site.test", 9001)
	up.SetDeadline(time.Now().Add(3 * time.Minute))
	type sum struct {
		n   int64
		sum string
	}
	downloaded, uploaded := make(chan sum, 1), make(chan string, 1)
	go func() {
		h := sha256.New()
		buf := make([]byte, 256<<10)
		n, _ := io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(down, size-last), buf)
		<-over
		rest, _ := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{down}, buf)
		downloaded <- sum{n + rest, fmt.Sprintf("%x", h.Sum(nil))}
	}()
	go func() {
		data := dataStream()
		io.CopyN(up, data, size-last)
		<-over
		io.CopyN(up, data, last)
		up.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(up)
		uploaded <- string(b)
	}()
	g.policy("site.test:*", "site.test", "udp:site.test:7", "other.test") // and the change is not lost
	for i := range 3 {
		waitFor(t, "some more of the streams", func() bool {
			in, out, err := w.client.Traffic(t.Context(), g.id)
			return err == nil && in > int64(i+1)<<25 && out > int64(i+1)<<25
		})
		began := time.Now()
		w.takeover()
		t.Logf("takeover %d: %s with start and end of the processes", i, time.Since(began))
		goesOn(t, echo)
		goesOn(t, packets)
	}
	finish()
	if d := <-downloaded; d.n != size || d.sum != want {
		t.Errorf("downloaded %d bytes of %d, digest good: %v", d.n, size, d.sum == want)
	}
	if u := <-uploaded; u != fmt.Sprintf("%d %s", size, want) {
		t.Errorf("uploaded %.40s, want %d", u, size)
	}
	for c, say := range map[net.Conn]string{half: "567890", started: "st: site.test\r\n\r\n"} {
		c.SetDeadline(time.Now().Add(patience))
		if got, err := exchange(c, say, 15); got != "HTTP/1.1 200 OK" {
			t.Errorf("a request over the takeover: %q %v", got, err)
		}
	}
	ws.SetDeadline(time.Now().Add(patience))
	if got, err := exchange(ws, "GET x", 5); got != "GET x" {
		t.Errorf("another protocol over the takeover: %q %v", got, err)
	}
	stuck.SetDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, stuck); n != 64<<20 {
		t.Errorf("what was stuck: %d bytes, %v", n, err)
	}
	if in, out, err := w.client.Traffic(t.Context(), g.id); err != nil || in < size+64<<20 || out < size || in > size+65<<20 || out > size+1<<20 {
		t.Errorf("traffic over takeovers: %d in, %d out, %v", in, out, err)
	}
	// Rules are still looked after.
	g.policy()
	ends(t, echo)
}

// A process that wants to take over and dies in the middle changes nothing.
func TestTakeoverThatFails(t *testing.T) {
	w := newWorld(t)
	g := w.sandbox("sbx-abort", []string{"site.test:*", "udp:site.test:7"})
	echo := g.mustOpen("site.test", 7)
	goesOn(t, echo)
	packets, err := g.open("udp", "site.test", 7)
	must(t, err)
	defer packets.Close()
	goesOn(t, packets)
	const size = 200 << 20
	down := g.mustOpen("site.test", 9000)
	fmt.Fprintf(down, "%d\n", size)
	for i := range 6 {
		c, err := dialFolder(t.Context(), folder(w.dir))
		must(t, err)
		must(t, send(c, call{Call: callHandover, Format: handoverFormat}))
		for range i {
			var item handedItem
			files, err := receive(c, &item)
			must(t, err)
			closeAll(files)
		}
		c.Close()
		goesOn(t, echo)
		goesOn(t, packets)
	}
	down.SetDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, down); n != size {
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
	// One that is older than what runs is told so.
	c, err := dialFolder(t.Context(), folder(w.dir))
	must(t, err)
	defer c.Close()
	must(t, send(c, call{Call: callHandover, Format: handoverFormat - 1}))
	var item handedItem
	if _, err := receive(c, &item); err != nil || item.Error == nil || item.Error.Code != fault.Unsupported {
		t.Errorf("an older build is told %+v, %v", item.Error, err)
	}
	goesOn(t, g.mustOpen("site.test", 7))
}
