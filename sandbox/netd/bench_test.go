package netd

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These are about a plain process inside; gVisor adds its own cost.

func BenchmarkAttach(b *testing.B) {
	w := newWorld(b)
	var attach, detach []time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("sbx-%d", i)
		began := time.Now()
		ns, err := w.client.Attach(b.Context(), id)
		must(b, err)
		ns.Close()
		attach = append(attach, time.Since(began))
		began = time.Now()
		must(b, w.client.Detach(b.Context(), id))
		detach = append(detach, time.Since(began))
	}
	report(b, "attach", attach)
	report(b, "detach", detach)
}

func report(b *testing.B, what string, d []time.Duration) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), what+"-p50-us")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), what+"-p99-us")
}

// BenchmarkDown is a download, with rules so that its filter is there too.
func BenchmarkDown(b *testing.B) {
	g := newWorld(b).sandbox("sbx-down", []string{"site.test:*"})
	g.w.inet.serve(9100, func(c net.Conn) {
		var size int64
		fmt.Fscanln(c, &size)
		zero := make([]byte, 256<<10)
		for ; size > 0; size -= int64(len(zero)) {
			if _, err := c.Write(zero); err != nil {
				return
			}
		}
	})
	const size = 256 << 20
	buf := make([]byte, 256<<10)
	down := func(b *testing.B, open func() net.Conn) {
		for b.Loop() {
			c := open()
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "%d\n", size)
			if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf); n != size {
				b.Fatal(n, err)
			}
			c.Close()
		}
	}
	b.Run("netd", func(b *testing.B) {
		b.SetBytes(size)
		down(b, func() net.Conn { return g.mustOpen("site.test", 9100) })
	})
	b.Run("direct", func(b *testing.B) {
		b.SetBytes(size)
		down(b, func() net.Conn { return g.w.direct("203.0.113.10:9100") })
	})
}

// direct is the same way without a sandbox.
func (w *world) direct(addr string) (c net.Conn) {
	must(w.t, within(w.host, func() (err error) { c, err = net.Dial("tcp", addr); return err }))
	w.t.Cleanup(func() { c.Close() })
	return c
}

func BenchmarkUp(b *testing.B) {
	g := newWorld(b).sandbox("sbx-up", []string{"site.test:*"})
	g.w.inet.serve(9101, func(c net.Conn) {
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
		fmt.Fprint(c, n)
	})
	const size = 256 << 20
	buf := make([]byte, 256<<10)
	up := func(b *testing.B, open func() net.Conn) {
		for b.Loop() {
			c := open()
			c.SetDeadline(time.Now().Add(time.Minute))
			for range size / len(buf) {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			c.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(c); string(got) != strconv.Itoa(size) {
				b.Fatalf("%s %v", got, err)
			}
			c.Close()
		}
	}
	b.Run("netd", func(b *testing.B) { b.SetBytes(size); up(b, func() net.Conn { return g.mustOpen("site.test", 9101) }) })
	b.Run("direct", func(b *testing.B) {
		b.SetBytes(size)
		up(b, func() net.Conn { return g.w.direct("203.0.113.10:9101") })
	})
}

// BenchmarkConnect is a connection and its first byte, the dial outside
// included.
func BenchmarkConnect(b *testing.B) {
	g := newWorld(b).sandbox("sbx-connect", []string{"site.test:*"})
	addr := g.at("site.test", 22)
	connect := func(b *testing.B, ns *os.File, addr string) {
		must(b, within(ns, func() error {
			first := make([]byte, 1)
			for b.Loop() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					return err
				}
				if _, err := io.ReadFull(c, first); err != nil {
					return err
				}
				c.Close()
			}
			return nil
		}))
	}
	b.Run("netd", func(b *testing.B) { connect(b, g.ns, addr) })
	b.Run("direct", func(b *testing.B) { connect(b, g.w.host, "203.0.113.10:22") })
}

func BenchmarkName(b *testing.B) {
	g := newWorld(b).sandbox("sbx-name", []string{"site.test:*"})
	g.at("site.test", 22)
	for b.Loop() {
		if _, err := g.lookup("site.test"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPolicyChange(b *testing.B) {
	g := newWorld(b).sandbox("sbx-policy", []string{"site.test:*"})
	for i := range 20 {
		goesOnB(b, g.mustOpen("site.test", 7), i)
	}
	for b.Loop() {
		must(b, g.w.client.SetPolicy(b.Context(), g.id, []string{"site.test:*"}))
	}
}

func goesOnB(b *testing.B, c net.Conn, i int) {
	if got, err := exchange(c, strconv.Itoa(i%10), 1); err != nil {
		b.Fatal(got, err)
	}
}

// BenchmarkMemory is what a hundred sandboxes cost, each with a connection.
func BenchmarkMemory(b *testing.B) {
	w := newWorld(b)
	info, err := w.client.Ping(b.Context())
	must(b, err)
	none := rss(b, info.PID)
	for i := range 100 {
		g := w.sandbox(fmt.Sprintf("sbx-%d", i), []string{"site.test:*"})
		goesOnB(b, g.mustOpen("site.test", 7), i)
	}
	for b.Loop() {
		rss(b, info.PID)
	}
	b.ReportMetric(float64(none>>10), "KiB-empty")
	b.ReportMetric(float64(rss(b, info.PID)>>10), "KiB-100")
}

func rss(b *testing.B, pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			must(b, err)
			return kb << 10
		}
	}
	return 0
}
