package docker_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// front is an address of its own for the engine, which can be shut.
type front struct {
	host  string
	mu    sync.Mutex
	open  bool
	conns map[net.Conn]struct{}
	work  sync.WaitGroup
}

// newFront listens on the network and address and passes on to the engine.
func newFront(t *testing.T, network, address string) *front {
	t.Helper()
	back := strings.TrimPrefix(engine(t).DaemonHost(), "unix://")
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{host: network + "://" + l.Addr().String(), open: true, conns: make(map[net.Conn]struct{})}
	t.Cleanup(func() { l.Close(); f.shut(); f.work.Wait() })
	f.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", back)
			if err != nil || !f.hold(in, out) {
				in.Close()
				continue
			}
			f.work.Go(func() { pass(out, in) })
			f.work.Go(func() { pass(in, out) })
		}
	})
	return f
}

// pass copies one direction and ends it at the other side.
func pass(to, from net.Conn) {
	io.Copy(to, from)
	if c, ok := to.(client.CloseWriter); ok {
		c.CloseWrite()
	}
}

func (f *front) hold(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		if !f.open {
			c.Close()
			continue
		}
		f.conns[c] = struct{}{}
	}
	return f.open
}

// shut cuts every connection and refuses new ones; reopen ends that.
func (f *front) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
	for c := range f.conns {
		c.Close()
	}
	clear(f.conns)
}

func (f *front) reopen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = true
}

// TestRemoteEngine holds that an engine that does not see this machine's files
// runs sandboxes all the same, and says what it cannot do.
func TestRemoteEngine(t *testing.T) {
	f := newFront(t, "tcp", "127.0.0.1:0")
	b := boot(t, docker.Config{Host: f.host}, nil)
	b.sh(t, "echo kept >f; ! echo x >>"+driver.GuestPath+" && ! rm -f "+driver.GuestPath)
	if err := b.d.Stop(t.Context(), b.id, 0); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if got := b.sh(t, "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}

	// Another server finds the copy of the guest that the first one made.
	again := open(t, docker.Config{Host: f.host, StateDir: b.state})
	defer again.Close()
	s := spec(t, "second")
	if err := again.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.ID, s.Rootfs.HostDirs = "third", []driver.HostDir{{Source: "/usr", Target: "/usr"}}
	if err := again.Create(t.Context(), s); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "remote") {
		t.Errorf("host directories: %v", err)
	}
	if lines, err := again.Leftovers(t.Context(), false); err != nil || len(lines) > 0 {
		t.Errorf("leftovers: %q, %v", lines, err)
	}
}

func TestNoEngine(t *testing.T) {
	d := open(t, docker.Config{Host: "unix://" + filepath.Join(t.TempDir(), "no.sock"), StateDir: t.TempDir()})
	defer d.Close()
	ctx := t.Context()
	s := driver.Spec{ID: "box", Guest: driver.Guest{Path: os.Args[0]}}
	_, caps := d.Capabilities(ctx)
	_, list := d.List(ctx)
	_, inspect := d.Inspect(ctx, "box")
	_, dial := d.Dial(ctx, "box")
	for what, err := range map[string]error{
		"capabilities": caps, "list": list, "inspect": inspect, "dial": dial,
		"create": d.Create(ctx, s), "start": d.Start(ctx, "box"), "stop": d.Stop(ctx, "box", 0), "remove": d.Remove(ctx, "box"),
	} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not answer at unix://") || !strings.Contains(err.Error(), "--engine gvisor") {
			t.Errorf("%s: %v", what, err)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := d.Wait(waiting, "box"); !fault.Is(err, fault.Timeout) {
		t.Errorf("wait: %v", err)
	}
}

func TestBadAddress(t *testing.T) {
	for _, host := range []string{"nonsense", "ssh://there", "unix:"} {
		if _, err := docker.New(docker.Config{Host: host, StateDir: t.TempDir()}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestEngineGoesAway holds that a restart of the engine's door is survived:
// Wait goes on, and sandboxes are found again.
func TestEngineGoesAway(t *testing.T) {
	f := newFront(t, "unix", filepath.Join(t.TempDir(), "front"))
	b := boot(t, docker.Config{Host: f.host}, nil)
	ended := make(chan driver.Status, 1)
	go func() {
		s, err := b.d.Wait(t.Context(), b.id)
		if err != nil {
			t.Error(err)
		}
		ended <- s
	}()
	f.shut()
	<-b.conn.Done()
	if _, err := b.d.Inspect(t.Context(), b.id); !fault.Is(err, fault.Unavailable) {
		t.Errorf("inspect: %v", err)
	}
	f.reopen()
	b.start(t) // it still runs: this only connects
	if err := b.d.Stop(t.Context(), b.id, 0); err != nil {
		t.Fatal(err)
	}
	if s := <-ended; s.State != driver.Stopped {
		t.Errorf("waited for %+v", s)
	}
}

// TestOtherStateFolder holds that labels keep state folders apart, also on the
// engine they share.
func TestOtherStateFolder(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	other := open(t, docker.Config{StateDir: stateDir(t)})
	defer other.Close()
	if list, err := other.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("another state folder lists %v, %v", list, err)
	}
	if lines, err := other.Leftovers(t.Context(), true); err != nil || len(lines) != 0 {
		t.Errorf("another state folder has leftovers %q, %v", lines, err)
	}
	if err := other.Remove(t.Context(), b.id); err != nil {
		t.Error(err)
	}
	if err := other.Create(t.Context(), spec(t, b.id)); err != nil {
		t.Errorf("the same id in another state folder: %v", err)
	}
	if got := b.sh(t, "echo alive"); got != "alive\n" {
		t.Errorf("got %q", got)
	}
}

// TestOOMWithoutServer holds that what exceeds its memory while no server
// runs is ended by the next one, and once.
func TestOOMWithoutServer(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) { s.Limits.MemoryBytes = 64 << 20 })
	if err := b.d.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := b.conn.Start(t.Context(), guest.Command{ID: "hog", NoStdin: true, Args: []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Signal != "KILL" {
		t.Fatalf("the hog ended with %+v, %v", exit, err)
	}
	b.d = open(t, docker.Config{StateDir: b.state})
	s, err := b.d.Wait(t.Context(), b.id)
	if err != nil || s.State != driver.Stopped || !s.Exit.OOM || s.Exit.Reason != "out of memory (limit 64Mi)" {
		t.Errorf("%+v, %v", s, err)
	}
	b.start(t)
	if err := b.d.Close(); err != nil {
		t.Fatal(err)
	}
	// The old event is still in the engine's memory, and of an earlier life.
	b.d = open(t, docker.Config{StateDir: b.state})
	waiting, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if s, err := b.d.Wait(waiting, b.id); !fault.Is(err, fault.Timeout) {
		t.Errorf("ended again: %+v, %v", s, err)
	}
}
