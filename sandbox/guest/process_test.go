package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// start starts a process whose output goes to the returned watcher.
func start(t testing.TB, c *guest.Conn, cmd guest.Command) (*guest.Process, *watcher) {
	t.Helper()
	w := newWatcher()
	p, err := c.Start(testContext(t), cmd, guest.Output{Stdout: w, Stderr: w})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p, w
}

func wait(t testing.TB, p *guest.Process) guest.Exit {
	t.Helper()
	exit, err := p.Wait(testContext(t))
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return exit
}

// watcher collects output and lets a test wait for what it expects.
type watcher struct {
	lockedBuffer
	changed chan struct{}
}

func newWatcher() *watcher { return &watcher{changed: make(chan struct{}, 1)} }

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.lockedBuffer.Write(b)
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return n, err
}

func (w *watcher) waitFor(t testing.TB, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for !strings.Contains(w.String(), text) {
		select {
		case <-w.changed:
		case <-timeout:
			t.Fatalf("%q did not come, only %q", text, w.String())
		}
	}
}

func TestStartRefuses(t *testing.T) {
	c := connect(t)
	for field, cmd := range map[string]guest.Command{
		"id":     {ID: "a b", Args: []string{"true"}},
		"label":  {ID: "x", Label: strings.Repeat("x", 300), Args: []string{"true"}},
		"args":   {ID: "x", Args: []string{"a\x00b"}},
		"script": {ID: "x", Script: "true", Args: []string{"true"}},
		"env":    {ID: "x", Env: []string{"novalue"}},
		"user":   {ID: "x", User: "no-such-user"},
		"dir":    {ID: "x", Dir: strings.Repeat("x", 5000)},
	} {
		_, err := c.Start(testContext(t), cmd, guest.Output{})
		if f := fault.From(err); err == nil || f.Code != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := c.Start(testContext(t), guest.Command{ID: "x", Dir: "/no/such/dir"}, guest.Output{})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "/no/such/dir") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing directory: %v", err)
	}
	_, err = c.Start(testContext(t), guest.Command{ID: "x", Args: []string{strings.Repeat("x", 2<<20)}}, guest.Output{})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a request of 2 MiB: %v", err)
	}
	if list, err := c.List(testContext(t)); err != nil || len(list) != 0 {
		t.Errorf("left behind: %+v %v", list, err)
	}
	if exit, _, errs := run(t, c, guest.Command{Args: []string{"true", strings.Repeat("x", 200_000)}}, nil); exit.Code != 126 || !strings.Contains(errs, "argument list too long") {
		t.Errorf("an argument of 200 kB: %+v %q", exit, errs)
	}
}

func TestIDs(t *testing.T) {
	c := connect(t)
	p, _ := start(t, c, guest.Command{ID: "one", Args: []string{"cat"}})
	if _, err := c.Start(testContext(t), guest.Command{ID: "one", Args: []string{"true"}}, guest.Output{}); !fault.Is(err, fault.Exists) {
		t.Errorf("an id twice: %v", err)
	}
	p.CloseWrite()
	wait(t, p)
	for range 50 { // free at once, every time
		run(t, c, guest.Command{ID: "one", Args: []string{"true"}}, nil)
	}
	if _, err := c.Attach(testContext(t), "one", -1, guest.Output{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("attach to a collected process: %v", err)
	}
	if err := c.Signal(testContext(t), "one", "TERM"); !fault.Is(err, fault.NotFound) {
		t.Errorf("signal a collected process: %v", err)
	}
}

func TestStartCancelled(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	mark := filepath.Join(s.workspace, "mark")
	_, err := c.Start(ctx, guest.Command{ID: "gone", Script: "trap 'echo hup > " + mark + "; exit' HUP; while :; do sleep 0.01; done"}, guest.Output{})
	if !fault.Is(err, fault.Cancelled) {
		t.Fatalf("start: %v", err)
	}
	for { // whether it was started or not, it must not stay
		list, err := c.List(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
	}
}

// Large input and output, with what comes out compared to what went in.
func TestBulk(t *testing.T) {
	c := connect(t)
	in := make([]byte, 24<<20)
	rand.NewChaCha8([32]byte{1}).Read(in)
	want := fmt.Sprintf("%x", sha256.Sum256(in))
	if _, out, _ := run(t, c, guest.Command{Args: []string{"sha256sum"}}, bytes.NewReader(in)); !strings.HasPrefix(out, want) {
		t.Errorf("inside the sum is %q, want %s", out, want)
	}
	h := sha256.New()
	p, err := c.Start(testContext(t), guest.Command{ID: "cat", Script: "cat; echo end >&2"}, guest.Output{Stdout: h})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(p, bytes.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	p.CloseWrite()
	if exit := wait(t, p); exit.Status() != 0 || fmt.Sprintf("%x", h.Sum(nil)) != want {
		t.Errorf("%+v, and what came back differs", exit)
	}
	if p.Offset() != int64(len(in))+4 {
		t.Errorf("offset %d", p.Offset())
	}
}

// A process that nobody reads, and one that does not read, hold back nobody
// else; and both can be let go of although they are stuck.
func TestStuckProcesses(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	release := make(chan struct{})
	blocked := make(chan struct{}, 1)
	silent, err := c.Start(ctx, guest.Command{ID: "unread", Args: []string{"cat", "/dev/zero"}}, guest.Output{Stdout: writerFunc(func(b []byte) (int, error) {
		select {
		case blocked <- struct{}{}:
		default:
		}
		<-release
		return len(b), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer close(release)
	deaf, _ := start(t, c, guest.Command{ID: "deaf", Args: []string{"sleep", "1000"}})
	written := make(chan error, 1)
	go func() {
		_, err := deaf.Write(make([]byte, 16<<20))
		written <- err
	}()
	<-blocked
	for i := range 20 {
		if exit, out, _ := run(t, c, guest.Command{ID: strconv.Itoa(i), Args: []string{"echo", "fine"}}, nil); exit.Status() != 0 || out != "fine\n" {
			t.Fatalf("%+v %q", exit, out)
		}
	}
	// Everything that must not queue behind the standard input does not.
	if err := deaf.CloseOutput(ctx); err != nil {
		t.Error(err)
	}
	silent.Close()
	deaf.Close()
	if err := <-written; err == nil {
		t.Error("16 MiB were taken by a process that does not read")
	}
	for {
		list, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 {
			t.Fatalf("%+v", list)
		}
		if list[0].Attached+list[1].Attached == 0 {
			break
		}
	}
	// The next one to attach gets through to the process.
	again, err := c.Attach(ctx, "deaf", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Signal(ctx, "TERM"); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, again); exit.Signal != "TERM" || exit.Status() != 143 {
		t.Errorf("%+v", exit)
	}
	if _, err := silent.Wait(ctx); !fault.Is(err, fault.Cancelled) {
		t.Errorf("waiting for a detached process: %v", err)
	}
}

func TestCloseOutput(t *testing.T) {
	c := connect(t)
	p, w := start(t, c, guest.Command{ID: "yes", Script: "yes; echo $? >&2"})
	w.waitFor(t, "y\n")
	if err := p.CloseOutput(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Code != 0 || !strings.HasSuffix(w.String(), "141\n") {
		t.Errorf("%+v, tail %q", exit, w.String()[max(0, len(w.String())-20):])
	}
}

// As with sshd, a child in the background that holds the output keeps the
// process from ending; one that does not hold it does not.
func TestBackgroundChild(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	hold := filepath.Join(s.workspace, "hold")
	p, w := start(t, c, guest.Command{ID: "holding", Script: "(while [ ! -e hold ]; do sleep 0.01; done; echo late) & echo early; exit 5"})
	w.waitFor(t, "early")
	done := make(chan guest.Exit, 1)
	go func() {
		if exit, err := p.Wait(context.Background()); err == nil {
			done <- exit
		}
	}()
	if list, err := c.List(testContext(t)); err != nil || len(list) != 1 || list[0].Exited {
		t.Errorf("%+v %v", list, err)
	}
	select {
	case exit := <-done:
		t.Fatalf("ended with %+v while its output was held open", exit)
	default:
	}
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case exit := <-done:
		if exit.Code != 5 || w.String() != "early\nlate\n" {
			t.Errorf("%+v %q", exit, w.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("does not end")
	}

	if exit, _, _ := run(t, c, guest.Command{ID: "free", Script: "sleep 1 >/dev/null 2>&1 & exit 6"}, nil); exit.Code != 6 {
		t.Errorf("%+v", exit)
	}
}

func TestSignals(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	p, w := start(t, c, guest.Command{ID: "x", Script: "trap 'echo got usr1' USR1; echo ready; while :; do sleep 0.01; done"})
	w.waitFor(t, "ready")
	for _, name := range []string{"USR1", "SIGUSR1", "usr1"} {
		if err := p.Signal(ctx, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.waitFor(t, "got usr1")
	for _, name := range []string{"", "NOPE", "9", "SIG"} {
		if err := p.Signal(ctx, name); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := c.Signal(ctx, "nobody", "TERM"); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such process: %v", err)
	}
	if err := p.Resize(ctx, guest.Size{Rows: 1}); !fault.Is(err, fault.State) {
		t.Errorf("resize without a terminal: %v", err)
	}
	if err := p.Signal(ctx, "KILL"); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Signal != "KILL" || exit.Status() != 137 {
		t.Errorf("%+v", exit)
	}
}

// A failing writer ends its stream and not the process.
func TestFailingWriter(t *testing.T) {
	c := connect(t)
	calls := 0
	var errs bytes.Buffer
	p, err := c.Start(testContext(t), guest.Command{ID: "x", Script: "seq 100000; echo end >&2"}, guest.Output{
		Stdout: writerFunc(func(b []byte) (int, error) { calls++; return 0, errors.New("full") }),
		Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); exit.Status() != 0 || calls != 1 || errs.String() != "end\n" {
		t.Errorf("%+v, %d calls, %q", exit, calls, errs.String())
	}
}

func TestInputAfterTheEnd(t *testing.T) {
	c := connect(t)
	p, w := start(t, c, guest.Command{ID: "x", Script: "exec 0<&-; echo closed; sleep 0.05; exit 4"})
	w.waitFor(t, "closed")
	for {
		if _, err := p.Write(make([]byte, 100_000)); errors.Is(err, io.ErrClosedPipe) {
			break // only when it has ended: until then the input is dropped
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if exit := wait(t, p); exit.Code != 4 {
		t.Errorf("%+v", exit)
	}
}
