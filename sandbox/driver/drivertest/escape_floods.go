package drivertest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// flood prints 1 GiB.
var flood = []string{"dd", "if=/dev/zero", "bs=1M", "count=1024"}

// ownSlack is what this process may grow by while others' output passes. Other
// tests run in it at the same time.
const ownSlack = 512 << 20

// testOutputNobodyReads holds that output without a reader costs nobody
// memory, and holds nobody up: not the host, nor the process that prints it.
func testOutputNobodyReads(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		before, begin := resident(t), time.Now()
		id := newID()
		if _, err := b.conn.Start(ctx(t), guest.Command{ID: id, NoStdin: true, Keep: true, Args: flood}, guest.Output{}); err != nil {
			t.Fatal(err)
		}
		b.conn.Close()
		b.conn = connect(t, e.d, b.id)
		for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
			list, err := b.conn.List(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 1 && list[0].ID == id && list[0].Exited {
				tick.Stop()
				break
			}
		}
		took := time.Since(begin)
		var kept tally
		p, err := b.conn.Attach(ctx(t), id, 0, guest.Output{Stdout: &kept})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(ctx(t)); err != nil || exit.Status() != 0 || kept.Load() > 64<<20 || p.Skipped() < 900<<20 {
			t.Errorf("%+v, %v; kept %d, skipped %d", exit, err, kept.Load(), p.Skipped())
		}
		t.Logf("1 GiB in %v, %d KiB kept, this process grew by %d MiB", took, kept.Load()>>10, (resident(t)-before)>>20)
		if grown := resident(t) - before; grown > ownSlack {
			t.Errorf("this process grew by %d MiB", grown>>20)
		}
	})
}

// testOutputReadSlowly holds that a reader that takes nothing holds back the
// process that prints, and nothing else on the same connection.
func testOutputReadSlowly(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		before := resident(t)
		slow := make(chan struct{})
		var got tally
		first := make(chan struct{}, 1)
		p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: flood}, guest.Output{Stdout: writerFunc(func(p []byte) (int, error) {
			select {
			case first <- struct{}{}:
			default:
			}
			<-slow
			return got.Write(p)
		})})
		if err != nil {
			t.Fatal(err)
		}
		<-first
		// Other work on the connection goes on meanwhile, as much as it likes.
		for range 20 {
			b.sh(t, "true")
		}
		if r := b.try(t, "dd if=/dev/zero bs=1M count=8 2>/dev/null | tr '\\0' x"); len(r.stdout) != 8<<20 {
			t.Errorf("%d bytes of a process beside it", len(r.stdout))
		}
		stalled := resident(t) - before
		close(slow)
		for got.Load() < 64<<20 && ctx(t).Err() == nil {
			b.ping(t) // it goes on where it stopped
		}
		if err := p.Signal(ctx(t), "KILL"); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(ctx(t)); err != nil || p.Skipped() > 0 {
			t.Errorf("%+v, %v; %d bytes skipped", exit, err, p.Skipped())
		}
		t.Logf("this process grew by %d MiB while nobody read, by %d MiB after %d MiB", stalled>>20, (resident(t)-before)>>20, got.Load()>>20)
		if grown := resident(t) - before; max(grown, stalled) > ownSlack {
			t.Errorf("this process grew by %d and %d MiB", stalled>>20, grown>>20)
		}
	})
}

// testBigArguments holds that a command of a megabyte runs, or is refused in
// a line.
func testBigArguments(t *testing.T, e *env) {
	const size = 1_000_000
	many := func(n int, text string) []string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("%s%06d", text, i))
		}
		return list
	}
	e.siege(t, func(b *box) {
		for name, cmd := range map[string]guest.Command{
			"one argument":     {Args: []string{"/bin/echo", strings.Repeat("x", size)}},
			"many arguments":   {Args: append([]string{"/bin/echo"}, many(size/100, strings.Repeat("x", 93))...)},
			"tiny arguments":   {Args: append([]string{"/bin/echo"}, many(size/20, "x")...)},
			"one variable":     {Args: []string{"/bin/echo"}, Env: []string{"X=" + strings.Repeat("x", size)}},
			"many variables":   {Args: []string{"/bin/echo"}, Env: many(size/100, "V="+strings.Repeat("x", 90))},
			"a long script":    {Script: "echo " + strings.Repeat("x", size)},
			"a long directory": {Args: []string{"/bin/echo"}, Dir: strings.Repeat("x/", size/2)},
			"a long user":      {Args: []string{"/bin/echo"}, User: strings.Repeat("x", size)},
			"a long program":   {Args: []string{strings.Repeat("x", size)}},
			"a long name":      {Args: []string{"/bin/echo"}, Label: strings.Repeat("x", size)},
		} {
			cmd.ID, cmd.NoStdin = newID(), true
			var out, bad tally
			p, err := b.conn.Start(ctx(t), cmd, guest.Output{Stdout: &out, Stderr: &bad})
			if err != nil {
				t.Logf("%s: %.120s", name, err)
				if f := fault.From(err); !oneLine(f.Message) || len(f.Message) > 2000 || f.Code == fault.Timeout || f.Code == fault.Internal || f.Code == fault.Unavailable {
					t.Errorf("%s: %s, %d bytes, %.100q", name, f.Code, len(f.Message), f.Message)
				}
			} else {
				exit, err := p.Wait(ctx(t))
				if err != nil || bad.Load() > 4000 {
					t.Errorf("%s: %v, %d bytes on standard error", name, err, bad.Load())
				}
				t.Logf("%s: exit %d, %d bytes", name, exit.Status(), out.Load())
			}
			b.ping(t)
		}
	})
}

// tally counts what is written to it.
type tally struct{ atomic.Int64 }

func (c *tally) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// writerFunc is a function that writes.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
