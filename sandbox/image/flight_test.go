package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// gatedTool counts its runs and prints a root filesystem when the gate opens.
func gatedTool(t *testing.T) (script, runs string, open func()) {
	t.Helper()
	gate, runs := fifo(t), filepath.Join(t.TempDir(), "runs")
	root := writeTar(t, minimalRoot()...)
	script = fmt.Sprintf("echo run >>%s\necho 'I: extracting archives...' >&2\nread line <%s\ncat %s\n", runs, gate, root)
	return script, runs, func() {
		if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

// signal returns a progress function that closes seen at the first line with
// the text.
func signal(text string) (progress func(string), seen chan struct{}) {
	seen = make(chan struct{})
	var once sync.Once
	return func(line string) {
		if strings.Contains(line, text) {
			once.Do(func() { close(seen) })
		}
	}, seen
}

func TestConcurrentCallersShareOneBuild(t *testing.T) {
	script, runs, open := gatedTool(t)
	c := bootstrapCatalog(t, Config{}, script)
	const callers = 16
	digests := make([]string, callers)
	errs := make([]error, callers)
	var ready, done sync.WaitGroup
	for i := range callers {
		ready.Add(1)
		done.Go(func() {
			progress, seen := signal("extracting archives")
			go func() { <-seen; ready.Done() }()
			_, rootfs, err := c.Provide(context.Background(), "base", progress)
			digests[i], errs[i] = rootfs.Digest, err
		})
	}
	ready.Wait() // everyone has seen the progress of the one build

	// One that gives up disturbs nobody.
	ctx, cancel := context.WithCancel(context.Background())
	progress, seen := signal("extracting archives")
	go func() { <-seen; cancel() }()
	if _, _, err := c.Provide(ctx, "base", progress); !fault.Is(err, fault.Cancelled) {
		t.Errorf("a cancelled caller got %v", err)
	}
	open()
	done.Wait()
	for i := range callers {
		if errs[i] != nil || digests[i] != digests[0] {
			t.Errorf("caller %d got %s, %v", i, digests[i], errs[i])
		}
	}
	if data, err := os.ReadFile(runs); err != nil || string(data) != "run\n" {
		t.Errorf("the tool ran: %q, %v", data, err)
	}
}

// When the last caller has given up, the build ends, and the next caller gets
// a new one.
func TestLastCallerCancels(t *testing.T) {
	script, runs, open := gatedTool(t)
	c := bootstrapCatalog(t, Config{}, script)
	ctx, cancel := context.WithCancel(context.Background())
	var all, up sync.WaitGroup
	for range 3 {
		up.Add(1)
		all.Go(func() {
			progress, seen := signal("extracting archives")
			go func() { <-seen; up.Done() }()
			if _, _, err := c.Provide(ctx, "base", progress); !fault.Is(err, fault.Cancelled) {
				t.Errorf("error = %v, want code CANCELLED", err)
			}
		})
	}
	up.Wait()
	cancel()
	all.Wait()
	assertNothingMade(t, c)

	progress, seen := signal("extracting archives")
	go func() { <-seen; open() }()
	if _, _, err := c.Provide(context.Background(), "base", progress); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(runs); err != nil || string(data) != "run\nrun\n" {
		t.Errorf("the tool ran: %q, %v", data, err)
	}
}

// Two catalogs on one directory stand for two processes.
func TestProcessesShareOneBuild(t *testing.T) {
	script, runs, open := gatedTool(t)
	first := bootstrapCatalog(t, Config{}, script)
	second := bootstrapCatalog(t, Config{Dir: first.cfg.Dir}, script)
	var wg sync.WaitGroup
	started, up := signal("extracting archives")
	var a, b string
	wg.Go(func() {
		_, rootfs, err := first.Provide(context.Background(), "base", started)
		if err != nil {
			t.Error(err)
		}
		a = rootfs.Digest
	})
	<-up
	waits, waiting := signal("another process is making base:latest")
	wg.Go(func() {
		_, rootfs, err := second.Provide(context.Background(), "base", waits)
		if err != nil {
			t.Error(err)
		}
		b = rootfs.Digest
	})
	<-waiting
	open()
	wg.Wait()
	if a != b || a == "" {
		t.Errorf("digests %q and %q", a, b)
	}
	if data, err := os.ReadFile(runs); err != nil || string(data) != "run\n" {
		t.Errorf("the tool ran: %q, %v", data, err)
	}
}

func TestCloseEndsBuilds(t *testing.T) {
	script, _, _ := gatedTool(t)
	c := bootstrapCatalog(t, Config{}, script)
	progress, up := signal("extracting archives")
	result := make(chan error, 1)
	go func() {
		_, _, err := c.Provide(context.Background(), "base", progress)
		result <- err
	}()
	<-up
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	assertNothingMade(t, c)
	if err := <-result; err == nil {
		t.Error("a build went on after Close")
	}
	if _, _, err := c.Provide(context.Background(), "base", nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("Provide after Close = %v, want code UNAVAILABLE", err)
	}
}

func TestFlightReplaysToLateCallers(t *testing.T) {
	c := newCatalog(t, Config{})
	release := make(chan struct{})
	boom := errors.New("boom")
	build := func(_ context.Context, say func(string)) (Layer, error) {
		for i := range 2 * maxReplay { // more than is kept
			say(fmt.Sprint(i))
		}
		<-release
		return Layer{}, boom
	}
	last, seen := signal(fmt.Sprint(maxReplay - 1))
	first := make(chan error, 1)
	go func() {
		_, err := c.share(context.Background(), "x", last, build)
		first <- err
	}()
	<-seen
	var late progressLog
	lastLate, seenLate := signal(fmt.Sprint(maxReplay - 1))
	second := make(chan error, 1)
	go func() {
		_, err := c.share(context.Background(), "x", func(line string) { late.say(line); lastLate(line) }, build)
		second <- err
	}()
	<-seenLate
	close(release)
	for _, ch := range []chan error{first, second} {
		if err := <-ch; !errors.Is(err, boom) {
			t.Errorf("error = %v", err)
		}
	}
	if n := len(late.lines); n != maxReplay || late.lines[0] != "0" {
		t.Errorf("the late caller saw %d lines, from %q", n, late.lines[0])
	}
}
