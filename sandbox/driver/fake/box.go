package fake

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// box is one sandbox.
type box struct {
	host *Host
	spec driver.Spec
	dir  string
	lock chan struct{} // holds one element while an operation is under way

	mu      sync.Mutex
	started bool // was ever
	broken  bool
	exit    driver.Exit
	usage   driver.Usage
	run     *run   // nil when it does not run
	image   *image // of a suspended life
}

// run is one life of a box, from a start to a stop.
type run struct {
	agent  *agent.Agent
	cancel context.CancelFunc
	ctx    context.Context
	over   chan struct{} // closed when the box does not run any more
	park   chan struct{} // closed when the life is to wait
	mark   string        // in the environment of every process of this run
	serve  sync.WaitGroup

	// Guarded by box.mu.
	exit    driver.Exit
	streams map[io.Closer]struct{}
	ending  bool // no stream may be opened any more
	parked  bool // the life has become an image
}

func (b *box) workspace() string { return filepath.Join(b.dir, "workspace") }

// markName is the variable by which processes are told apart.
const markName = "SANDGATE_FAKE"

// boot starts a life. The caller holds the box's lock.
func (b *box) boot() {
	b.discardImage()
	mark := markName + "=" + filepath.Base(b.dir) + fmt.Sprintf("-%d", time.Now().UnixNano())
	b.live(agent.New(agent.Config{
		Version: "fake", Workspace: b.workspace(), Etc: filepath.Join(b.dir, "etc"), Program: b.spec.Guest.Path,
		Env: append([]string{mark}, b.spec.Guest.Env...),
		// The grace of Stop is the shorter one.
		ShutdownGrace: 5 * time.Second,
	}), mark)
}

// live makes a guest the present life.
func (b *box) live(a *agent.Agent, mark string) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{
		agent: a, ctx: ctx, cancel: cancel, mark: mark,
		over: make(chan struct{}), park: make(chan struct{}),
		exit:    driver.Exit{Reason: "stopped"},
		streams: make(map[io.Closer]struct{}),
	}
	b.mu.Lock()
	b.run, b.started, b.exit = r, true, driver.Exit{}
	b.mu.Unlock()
	b.host.runs.Go(func() { b.watch(r) })
}

// watch ends a life when its guest has ended, or is to wait.
func (b *box) watch(r *run) {
	select {
	case <-r.agent.Done():
	case <-r.park:
	}
	b.mu.Lock()
	r.ending = true
	r.dropStreams()
	parked := r.parked
	b.mu.Unlock()
	if !parked {
		killAll(r.mark)
	}
	r.cancel()
	r.serve.Wait()
	b.mu.Lock()
	b.run, b.exit = nil, r.exit
	b.mu.Unlock()
	close(r.over)
}

// dropStreams cuts all streams. The caller holds box.mu.
func (r *run) dropStreams() {
	for s := range r.streams {
		s.Close()
	}
	clear(r.streams)
}

// open opens a stream to the guest.
func (b *box) open() (io.ReadWriteCloser, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.run
	if r == nil || r.ending {
		return nil, false
	}
	host, inside := net.Pipe()
	s := &stream{Conn: host, box: b, run: r}
	r.streams[s.Conn] = struct{}{}
	r.serve.Go(func() {
		// How a connection ends is told to the host's end of it.
		_ = r.agent.Serve(r.ctx, inside)
	})
	return s, true
}

// stream is the host's end of a pipe.
type stream struct {
	net.Conn
	box *box
	run *run
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.box.mu.Lock()
	delete(s.run.streams, s.Conn)
	s.box.mu.Unlock()
	return s.Conn.Close()
}

// die ends the present life, if there is one, at once. The streams go first,
// as they do when a machine dies, so that nobody learns how a process ended.
func (b *box) die(exit driver.Exit) {
	b.mu.Lock()
	r := b.run
	if r != nil {
		r.exit = exit
		r.dropStreams()
	}
	b.mu.Unlock()
	if r == nil {
		return
	}
	r.kill()
	<-r.over
}

// kill ends the life without notice to its processes.
func (r *run) kill() {
	killAll(r.mark)
	r.agent.Shutdown()
}

// killAll kills what has the mark until nothing has it: a process may be just
// making another.
func killAll(mark string) {
	for found := true; found; {
		found = false
		processes(mark, func(pid int) {
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
		})
	}
}

// status is what a driver tells.
func (b *box) status() driver.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := driver.Status{ID: b.spec.ID, Labels: b.spec.Labels}
	switch {
	case b.broken:
		s.State = driver.Broken
	case b.run != nil:
		s.State = driver.Running
	case b.started:
		s.State, s.Exit, s.Memory = driver.Stopped, b.exit, b.image != nil
	default:
		s.State = driver.Created
	}
	return s
}

// current is the present life, nil when there is none.
func (b *box) current() *run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run
}

// furnish makes the folder of a new sandbox. Users are root alone, which is
// whoever runs the tests, at home in the sandbox: no shell reads the
// developer's own start-up files.
func furnish(dir string) error {
	for _, sub := range []string{"workspace", "etc", "home", "gone"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	// What a layer says about the root of the files is good for any driver.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	// Anybody may make this mark.
	if err := unix.Mknod(filepath.Join(dir, "gone", "workspace"), unix.S_IFCHR, 0); err != nil {
		return err
	}
	line := fmt.Sprintf("root:x:%d:%d:root:%s:/bin/sh\n", os.Geteuid(), os.Getegid(), filepath.Join(dir, "home"))
	return os.WriteFile(filepath.Join(dir, "etc", "passwd"), []byte(line), 0o644)
}
