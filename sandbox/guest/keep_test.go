package guest_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// A host that dies between learning of an exit and writing it down finds the
// exit and the output again, as often as it takes.
func TestKeptUntilForgotten(t *testing.T) {
	s := newSandbox(t, nil)
	ctx := testContext(t)
	first := s.connect(t)
	cmd := guest.Command{ID: "job", Script: "echo out; exit 7", Keep: true}
	p, err := first.Start(ctx, cmd, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx); err != nil || exit.Code != 7 {
		t.Fatalf("exit %+v, %v", exit, err)
	}
	first.Close()
	c := s.connect(t)
	for range 2 {
		var out bytes.Buffer
		p, err := c.Attach(ctx, "job", 0, guest.Output{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(ctx); err != nil || exit.Code != 7 || out.String() != "out\n" {
			t.Fatalf("found again: %+v, %v, %q", exit, err, out.String())
		}
	}
	if _, err := c.Start(ctx, cmd, guest.Output{}); !fault.Is(err, fault.Exists) {
		t.Errorf("start while it is kept: %v", err)
	}
	if err := c.Forget(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	if err := c.Forget(ctx, "job"); !fault.Is(err, fault.NotFound) {
		t.Errorf("forget again: %v", err)
	}
	if list, err := c.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("still kept: %+v, %v", list, err)
	}
}

func TestForgetRefusesWhatRuns(t *testing.T) {
	c := connect(t)
	p, _ := start(t, c, guest.Command{ID: "cat", Args: []string{"cat"}, Keep: true})
	if err := c.Forget(testContext(t), "cat"); !fault.Is(err, fault.State) {
		t.Errorf("forget what runs: %v", err)
	}
	p.CloseWrite()
	wait(t, p)
}

func TestUnforgottenAreBounded(t *testing.T) {
	c := newSandbox(t, func(c *agent.Config) { c.KeepUnforgotten = 3 }).connect(t)
	for i := range 5 {
		run(t, c, guest.Command{ID: fmt.Sprint("p", i), Script: "true", Keep: true}, nil)
	}
	for ctx := testContext(t); ; {
		list, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, info := range list {
			ids = append(ids, info.ID)
		}
		if slices.Equal(ids, []string{"p2", "p3", "p4"}) {
			return
		}
	}
}

// A shell with job control puts its children into groups of their own; the end
// of the session reaches them, and a group signal does not.
func TestSignalSession(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	lines := &firstLine{seen: make(chan struct{})}
	p, err := c.Start(ctx, guest.Command{ID: "sh", NoStdin: true, Args: []string{"bash", "-c", "set -m; sleep 1000 & sleep 1000 & echo up; wait"}}, guest.Output{Stdout: lines})
	if err != nil {
		t.Fatal(err)
	}
	<-lines.seen
	if err := p.SignalSession(ctx, "KILL"); err != nil {
		t.Fatal(err)
	}
	// The pipes end only with the last of them.
	if exit, err := p.Wait(ctx); err != nil || exit.Signal != "KILL" {
		t.Fatalf("exit %+v, %v", exit, err)
	}
}

// Output that nobody took in time is told to whom attaches, before what follows.
func TestSkippedIsTold(t *testing.T) {
	s := newSandbox(t, nil)
	ctx := testContext(t)
	first := s.connect(t)
	p, err := first.Start(ctx, guest.Command{ID: "big", NoStdin: true, Keep: true, Script: "head -c 1000000 /dev/zero | tr '\\0' x; sleep 0.05; echo end"}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var order []string
	var skipped int64
	var out bytes.Buffer
	again, err := first.Attach(ctx, "big", 10, guest.Output{Stdout: writer(func(b []byte) (int, error) {
		order = append(order, "data")
		return out.Write(b)
	}), Skipped: func(n int64) { order, skipped = append(order, "skipped"), n }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if order[0] != "skipped" || 10+skipped+int64(out.Len()) != 1000004 || !strings.HasSuffix(out.String(), "end\n") {
		t.Fatalf("skipped %d, then %d bytes; order begins with %s", skipped, out.Len(), order[0])
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// firstLine tells when anything was written.
type firstLine struct {
	seen chan struct{}
	told bool
}

func (f *firstLine) Write(b []byte) (int, error) {
	if !f.told {
		f.told = true
		close(f.seen)
	}
	return len(b), nil
}
