package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Name is the word users choose this driver by.
const Name = "gvisor"

// Config is what a Driver needs from its owner.
type Config struct {
	// StateDir is this driver's own directory; it is made when missing. Two
	// drivers on one host use different ones and do not meet.
	StateDir string
	// Log takes what is worth knowing but no caller's error; nil discards.
	Log *slog.Logger
	// Executable is the program that calls Main when IsRunsc says so;
	// "/proc/self/exe" when empty.
	Executable string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Network connects sandboxes that ask for it; nil: none may.
	Network driver.Network
}

// Driver runs sandboxes on the embedded gVisor. It holds nothing that is not
// on disk too, except locks.
type Driver struct {
	dir        string // absolute
	log        *slog.Logger
	executable string
	now        func() time.Time
	root       bool   // true: mounts and cgroups are ours to make
	cgroup     string // parent of all our cgroups, unique to dir

	network driver.Network

	locks  keyedMutex
	host   func() host     // probed once
	ctx    context.Context // of what runs in the background
	cancel context.CancelFunc

	disks diskUses

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Stats     = (*Driver)(nil)
	_ driver.Cleaner   = (*Driver)(nil)
	_ driver.Saver     = (*Driver)(nil)
	_ driver.Suspender = (*Driver)(nil)
	_ driver.Resizer   = (*Driver)(nil)
)

// New opens the driver on its state directory. It starts nothing and removes
// nothing; call Close when done.
func New(c Config) (*Driver, error) {
	if c.StateDir == "" {
		return nil, fault.InvalidField("state directory", "is missing")
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the current directory cannot be read")
	}
	d := &Driver{
		dir:        dir,
		log:        c.Log,
		executable: c.Executable,
		now:        c.Now,
		root:       os.Geteuid() == 0,
		network:    c.Network,
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.executable == "" {
		d.executable = "/proc/self/exe"
	}
	if d.now == nil {
		d.now = time.Now
	}
	for _, sub := range []string{d.runDir(), d.boxDir(), d.trashDir()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "the state directory %s cannot be made: %v", dir, errors.Unwrap(err))
		}
	}
	sum := sha256.Sum256([]byte(dir))
	d.cgroup = "sandgate-" + hex.EncodeToString(sum[:5])
	d.host = sync.OnceValue(d.probe)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	// gVisor's library code logs to standard error unless told otherwise. The
	// target is a variable of that package, so this is for the whole process.
	log.SetTarget(emitter{d.log})
	return d, nil
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return Name }

// Close implements driver.Driver. It waits for what the driver itself does in
// the background, which is little and bounded in time.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
	return nil
}

// background runs f, which ends soon after d.ctx, unless the driver is closed.
func (d *Driver) background(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(f)
	return true
}

// runDir is runsc's --root: its state files and control sockets.
func (d *Driver) runDir() string { return filepath.Join(d.dir, "run") }

// boxDir holds a directory for each sandbox.
func (d *Driver) boxDir() string { return filepath.Join(d.dir, "box") }

// trashDir holds directories of sandboxes while they are deleted.
func (d *Driver) trashDir() string { return filepath.Join(d.dir, "trash") }

func (d *Driver) box(id string) box { return box{dir: filepath.Join(d.boxDir(), id)} }

// lock serialises the operations on one sandbox: inside this process with a
// mutex, and against other processes with a lock on a file of the sandbox. The
// launcher holds the latter too, so that a server which comes up after a crash
// does not meet a sandbox that is half started. It fails with NotFound when
// the sandbox has no directory.
func (d *Driver) lock(ctx context.Context, id string) (*held, error) {
	if !driver.ValidID(id) {
		return nil, notFound(id)
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return nil, fault.From(err)
	}
	if ctx.Err() != nil { // a lock that is free may be taken all the same
		unlock()
		return nil, fault.From(ctx.Err())
	}
	file, err := lockFile(ctx, d.box(id).lock())
	if err != nil {
		unlock()
		if errors.Is(err, os.ErrNotExist) {
			return nil, notFound(id)
		}
		if ctx.Err() != nil {
			return nil, fault.From(err)
		}
		return nil, fault.Wrap(err, fault.Unavailable, "sandbox %s cannot be locked", id)
	}
	return &held{box: d.box(id), file: file, unlock: unlock}, nil
}

func notFound(id string) *fault.Error {
	if !driver.ValidID(id) {
		return fault.New(fault.NotFound, "there is no such sandbox").About("sandbox")
	}
	return fault.New(fault.NotFound, "there is no sandbox %s", id).About("sandbox")
}

// failure turns an unexpected error of an operation into one for people and
// logs the cause, which these do not see. A nil error stays nil, a fault and
// the end of a context keep their code.
func (d *Driver) failure(err error, op, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "the disk of the state directory is full; free some space and try again")
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	d.log.Error("sandbox operation", "op", op, "sandbox", id, "error", err)
	return fault.Wrap(err, fault.Internal, "sandbox %s could not be %s; the server's log has the cause", id, op).About("sandbox")
}

// emitter passes gVisor's log on.
type emitter struct{ log *slog.Logger }

// Emit implements log.Emitter.
func (e emitter) Emit(depth int, level log.Level, timestamp time.Time, format string, v ...any) {
	if !e.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	e.log.Debug("gvisor: " + fmt.Sprintf(format, v...))
}
