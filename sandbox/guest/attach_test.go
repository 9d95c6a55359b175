package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// finished starts a command, detaches from it and waits until it has ended.
func finished(t *testing.T, c *guest.Conn, cmd guest.Command) {
	t.Helper()
	ctx := testContext(t)
	p, err := c.Start(ctx, cmd, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	waitEnded(t, c, cmd.ID)
}

func waitEnded(t *testing.T, c *guest.Conn, id string) guest.Info {
	t.Helper()
	ctx := testContext(t)
	for {
		list, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range list {
			if info.ID == id && info.Exited && info.Attached == 0 {
				return info
			}
		}
	}
}

func TestAttachOffsets(t *testing.T) {
	script := "printf 0123; sleep 0.01; printf 456 >&2; sleep 0.01; printf 789abcdefghij; exit 3"
	for _, from := range []int64{-1, 0, 1, 4, 5, 7, 8, 19, 20, 99} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			c := connect(t)
			finished(t, c, guest.Command{ID: "x", Script: script})
			// The order of the two streams is the one the guest saw.
			whole := newWatcher()
			all, err := c.Attach(testContext(t), "x", -1, guest.Output{Stdout: whole, Stderr: whole})
			if err != nil {
				t.Fatal(err)
			}
			for len(whole.String()) < 20 { // the offset is counted a moment later
				<-whole.changed
			}
			all.Close()
			want := whole.String()[min(max(from, 0), 20):]
			var out bytes.Buffer
			p, err := c.Attach(testContext(t), "x", from, guest.Output{Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			if exit := wait(t, p); exit.Code != 3 || out.String() != want || p.Offset() != 20 || p.Skipped() != 0 {
				t.Errorf("%+v, %q, offset %d, skipped %d", exit, out.String(), p.Offset(), p.Skipped())
			}
		})
	}
}

// A process whose client has gone goes on, and never waits for a new one; what
// the ring cannot hold is skipped, and that is told.
func TestDetachedProcessGoesOn(t *testing.T) {
	c := connect(t)
	finished(t, c, guest.Command{ID: "x", Script: "seq 200000; exit 2"})
	var want strings.Builder
	for i := 1; i <= 200000; i++ {
		fmt.Fprintln(&want, i)
	}
	var out bytes.Buffer
	p, err := c.Attach(testContext(t), "x", 0, guest.Output{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Code != 2 {
		t.Errorf("%+v", exit)
	}
	if !strings.HasSuffix(want.String(), out.String()) || out.Len() < 200<<10 {
		t.Errorf("%d bytes came, not the end of the output", out.Len())
	}
	if p.Offset() != int64(want.Len()) || p.Skipped() != int64(want.Len()-out.Len()) {
		t.Errorf("offset %d of %d, skipped %d of %d", p.Offset(), want.Len(), p.Skipped(), want.Len()-out.Len())
	}
}

// Two watch one process. The first holds it back; the second misses what it is
// too slow for, and knows what it has missed.
func TestTwoAttachments(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	begin := make(chan struct{})
	p, first := start(t, c, guest.Command{ID: "x", Script: "read line; seq 500000; read line"})
	var second bytes.Buffer
	var once sync.Once
	started := make(chan struct{})
	q, err := c.Attach(ctx, "x", -1, guest.Output{Stdout: writerFunc(func(b []byte) (int, error) {
		once.Do(func() { close(started); <-begin })
		return second.Write(b)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p, "go\n"); err != nil {
		t.Fatal(err)
	}
	<-started
	var want strings.Builder
	for i := 1; i <= 500000; i++ {
		fmt.Fprintln(&want, i)
	}
	first.waitFor(t, "\n500000\n") // the slow one holds nobody back
	close(begin)
	if _, err := io.WriteString(q, "end\n"); err != nil { // both may write
		t.Fatal(err)
	}
	wait(t, p)
	wait(t, q)
	if first.String() != want.String() || p.Skipped() != 0 {
		t.Errorf("the first one got %d bytes of %d", len(first.String()), want.Len())
	}
	if q.Skipped() == 0 || q.Skipped()+int64(second.Len()) != int64(want.Len()) || !strings.HasSuffix(want.String(), second.String()[second.Len()-1000:]) {
		t.Errorf("the second one got %d bytes and skipped %d of %d", second.Len(), q.Skipped(), want.Len())
	}
}

// An exit is kept until somebody has taken it over.
func TestExitIsKept(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	ctx := testContext(t)
	finished(t, c, guest.Command{ID: "x", Script: "exit 7"})
	p, err := c.Attach(ctx, "x", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close() // without Wait
	c.Close()
	c = s.connect(t)
	if info := waitEnded(t, c, "x"); info.Exit.Code != 7 {
		t.Errorf("%+v", info)
	}
	p, err = c.Attach(ctx, "x", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
	for {
		list, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
	}
}

func TestUncollectedAreDropped(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	s := newSandbox(t, func(c *agent.Config) {
		c.KeepFinished = 3
		c.KeepTime = time.Hour
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	c := s.connect(t)
	ctx := testContext(t)
	until := func(want string) {
		t.Helper()
		for {
			list, err := c.List(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, info := range list {
				ids = append(ids, info.ID)
			}
			if fmt.Sprint(ids) == want {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%v are kept, want %s", ids, want)
			}
		}
	}
	advance := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	for i := range 5 {
		advance(time.Second)
		finished(t, c, guest.Command{ID: fmt.Sprint("p", i), Script: "true"})
	}
	until("[p2 p3 p4]")
	p, w := start(t, c, guest.Command{ID: "alive", Script: "echo ready; read line"})
	w.waitFor(t, "ready")
	advance(2 * time.Hour)
	finished(t, c, guest.Command{ID: "new", Script: "true"})
	until("[alive new]")
	p.CloseWrite()
	wait(t, p)
}

// The loss of a connection ends waiting and nothing else.
func TestConnectionLost(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	p, w := start(t, c, guest.Command{ID: "x", Script: "echo one; read line; echo $line"})
	w.waitFor(t, "one")
	c.Close()
	if _, err := p.Wait(testContext(t)); !errors.Is(err, guest.ErrLost) || !fault.Is(err, fault.Unavailable) {
		t.Errorf("wait: %v", err)
	}
	if _, err := p.Write([]byte("x")); err == nil {
		t.Error("a write after the loss succeeded")
	}
	if err := c.Ping(testContext(t)); !errors.Is(err, guest.ErrLost) {
		t.Errorf("ping: %v", err)
	}
	c = s.connect(t)
	var out bytes.Buffer
	q, err := c.Attach(testContext(t), "x", p.Offset(), guest.Output{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(q, "two\n"); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, q); exit.Status() != 0 || out.String() != "two\n" {
		t.Errorf("%+v %q", exit, out.String())
	}
}

func TestList(t *testing.T) {
	c := connect(t)
	p, _ := start(t, c, guest.Command{ID: "a", Label: "a label", Args: []string{"cat", "-", "\x1b[31m"}})
	start(t, c, guest.Command{ID: "b", TTY: &guest.TTY{}, Script: "read line"})
	list, err := c.List(testContext(t))
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	a, b := list[0], list[1]
	if a.ID != "a" || a.Label != "a label" || a.PID != p.PID() || a.TTY || a.Attached != 1 || a.Exited || a.Title != "cat -  [31m" || time.Since(a.Started) > time.Minute {
		t.Errorf("%+v", a)
	}
	if b.ID != "b" || !b.TTY || b.Title != "read line" {
		t.Errorf("%+v", b)
	}
}
