// Package modeltest drives an engine with random sequences of operations,
// deaths and crashes, and compares it with a model of what it promised.
//
// The model knows little: which sandboxes exist, whether they are up, what
// their files hold, which commands were answered with what. Where an answer
// never came, because the server died first, the model allows both what was
// before and what was asked for, and learns which one it is by looking.
// Nothing that was answered may be lost, and nothing may be left of what is
// gone: in the store, with the driver, on the disk.
//
// A crash is the death of the server as kill -9 brings it: at a random call of
// the driver, before or after it has had its effect, or at a random moment. The
// store is closed under the engine and the driver does nothing more for it;
// then another engine starts on the same state.
package modeltest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/store"
)

// Harness tells a run what it drives.
type Harness struct {
	// Driver opens a driver on the host of the run; it is called once for each
	// life of the server and closed at its end.
	Driver func(t *testing.T) driver.Driver
	// Rootfs has a POSIX shell, sleep and the like.
	Rootfs driver.Rootfs
	Guest  driver.Guest
	// Steps is how many operations are made.
	Steps int
	// Kill ends a running sandbox behind everybody's back.
	Kill func(id string)
	// Freeze stops a running sandbox without ending it, as SIGSTOP does. Nil
	// leaves that out.
	Freeze func(t *testing.T, id string) (thaw func())
	// Dir, when not empty, is where the server keeps its state, and Full fills
	// the disk that it lies on until free is called. Without Full the disk has
	// always room.
	Dir  string
	Full func(t *testing.T) (free func())
	// Leaks returns what the host holds of sandboxes that are not in live. Nil
	// leaves that out.
	Leaks func(live map[string]bool) []string
	// Patience bounds one operation; a minute when zero.
	Patience time.Duration
}

// seedVariable repeats a run: the seed is printed by one that fails.
const seedVariable = "SANDGATE_MODEL_SEED"

// alice owns everything in a run.
var alice = keys.Principal{ID: "alice", Role: keys.Member}

// run is one run under way.
type run struct {
	t    *testing.T
	h    Harness
	rand *rand.Rand
	dir  string

	gate   *gate
	store  *store.Store
	engine *sandbox.Engine
	caps   driver.Capabilities
	life   int // of the server, counted from 1

	model  model
	unsure bool // what was refused for a full disk has to be looked at
	step   int
	// diskFull: the disk has no room now; refused: something was, for that.
	diskFull, refused bool
	halfDeleted       *box // its delete was

	log   []string // the last steps, for whoever has to understand a failure
	said  tail     // what the server has logged
	count map[string]int
}

// Run makes h.Steps steps.
func Run(t *testing.T, h Harness) {
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedVariable); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		seed = n
	}
	// The state lies below a short path: sockets live there.
	dir, err := os.MkdirTemp(h.Dir, "sgm")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, h: h, rand: rand.New(rand.NewPCG(seed, 1)), dir: dir, count: map[string]int{}}
	r.model.boxes = map[string]*box{}
	r.model.snapshots = map[string]*snapshot{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d; the last steps:", seedVariable, seed)
			for _, line := range r.log {
				t.Log(line)
			}
			t.Logf("the log of the server ends with:\n%s", r.said.String())
		}
		r.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r.open()
	for r.step = 1; r.step <= h.Steps && !t.Failed(); r.step++ {
		r.one()
		if r.step%25 == 0 {
			r.check()
		}
	}
	if !t.Failed() {
		r.clear()
	}
	t.Logf("seed %d, %d lives of the server, steps: %v", seed, r.life, r.count)
}

// one makes one step: an operation, and sometimes the server dies in it.
func (r *run) one() {
	s := r.choose()
	r.note("%d %s", r.step, s.name)
	r.count[s.name]++
	if r.rand.IntN(25) != 0 {
		if s.do(r); r.unsure {
			r.unsure = false
			r.learn()
		}
		return
	}
	r.count["crash"]++
	switch r.rand.IntN(3) {
	case 0:
		r.gate.dieAfter(1+r.rand.IntN(4), r.rand.IntN(2) == 0)
		s.do(r)
	default:
		timer := time.AfterFunc(time.Duration(r.rand.IntN(20_000))*time.Microsecond, r.gate.die)
		s.do(r)
		timer.Stop()
	}
	r.gate.die()
	r.restart()
}

// open starts the server.
func (r *run) open() {
	r.t.Helper()
	r.life++
	ctx := context.Background()
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(r.dir, "state.db")})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store = st
	r.gate = newGate(r.h.Driver(r.t), func() { st.Close() })
	r.engine, err = sandbox.NewEngine(ctx, sandbox.Config{
		Driver: r.gate, Store: st, Images: Images{r.h.Rootfs}, Guest: r.h.Guest, GuestDigest: "test",
		OutputDir: filepath.Join(r.dir, "executions"), LayersDir: filepath.Join(r.dir, "layers"),
		DefaultRuntime: RuntimeName, MaxPerMember: 1000,
		Log: slog.New(slog.NewTextHandler(&r.said, nil)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.caps = r.engine.Capabilities()
	if _, err := r.engine.Reconcile(ctx); err != nil {
		r.t.Fatalf("reconcile: %v", err)
	}
}

// stop ends the server, if it lives.
func (r *run) stop() {
	if r.engine == nil {
		return
	}
	r.engine.Close()
	r.gate.die()
	r.gate.Close()
	r.engine = nil
}

// restart starts the server after its death and learns what became of what was
// under way.
func (r *run) restart() {
	r.t.Helper()
	r.stop()
	r.open()
	r.note("life %d of the server", r.life)
	r.unsure = false
	r.learn()
}

// actor is who does everything.
func (r *run) actor() *sandbox.Actor { return r.engine.As(alice) }

// ctx bounds one operation.
func (r *run) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), r.h.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *run) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
	if len(r.log) > 60 {
		r.log = r.log[1:]
	}
}

// tail keeps the last lines written to it.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, string(b))
	if len(t.lines) > 60 {
		t.lines = t.lines[1:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}
