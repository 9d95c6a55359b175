package netd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Config is what a daemon is made from.
type Config struct {
	// Dir is its state folder. There is one daemon for each.
	Dir string
	// Takeover goes on with the connections of a daemon that runs on Dir.
	// Without it, one that runs is an error.
	Takeover bool
	// Resolver answers what sandboxes want to know; the zero value is the
	// resolver of this host.
	Resolver netip.AddrPort
	// Forbidden networks are refused, beside those that always are: such as the
	// public address of a host behind NAT, which leads back to it.
	Forbidden []netip.Prefix
	// Limits of each sandbox; zero fields have a default.
	Limits Limits
	// Ready is called once, when the daemon answers.
	Ready func()
	Log   *slog.Logger // nil: none
}

// Limits bound what one sandbox can make the daemon hold.
type Limits struct {
	Connections int           // at once; 1024
	Flows       int           // of UDP, at once; 512
	Questions   int           // to the name server, at once; 64
	Handshake   time.Duration // until a connection says whom it is for; 5 s
	Idle        time.Duration // until a flow of UDP is forgotten; 60 s
}

func (l Limits) orDefault() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Connections, 1024)
	def(&l.Flows, 512)
	def(&l.Questions, 64)
	if l.Handshake == 0 {
		l.Handshake = 5 * time.Second
	}
	if l.Idle == 0 {
		l.Idle = time.Minute
	}
	return l
}

const (
	lockTimeout = 5 * time.Second
	tickEvery   = 2 * time.Second
	saveEvery   = time.Minute
)

// daemon is a running netd.
type daemon struct {
	dir     folder
	root    bool
	limits  Limits
	log     *slog.Logger
	build   string
	outside *outside
	journal *journal
	ctx     context.Context
	stop    context.CancelFunc

	lock     *os.File // held as long as this is the daemon of the folder
	listener *net.UnixListener

	// room is how many more connections of all sandboxes there may be.
	room atomic.Int64

	// calls is held for reading by every call, and for writing while all is
	// handed over to another process.
	calls  sync.RWMutex
	handed atomic.Bool

	mu    sync.Mutex
	boxes map[string]*box
}

// Run runs a daemon until ctx ends, a client ends it, or another process takes
// over. Sandboxes that are connected stay so; nothing they send gets out until
// another daemon runs.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &daemon{
		dir: folder(cfg.Dir), root: os.Geteuid() == 0, limits: cfg.Limits.orDefault(), log: cfg.Log, build: buildID("/proc/self/exe"),
		outside: newOutside(cfg.Resolver, cfg.Forbidden), journal: newJournal(time.Now), boxes: map[string]*box{},
	}
	d.room.Store(roomForConnections())
	d.ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	if err := d.dir.prepare(); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the folder %s of the network daemon cannot be used: %v", cfg.Dir, err)
	}
	if err := d.begin(cfg.Takeover); err != nil {
		return err
	}
	ready := cfg.Ready
	if ready == nil {
		ready = func() {}
	}
	return d.serve(ready)
}

// roomForConnections is how many connections the descriptors of this process
// are enough for: each has two sockets, and up to two pipes while it is busy.
func roomForConnections() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 1024
	}
	return int64(min(limit.Cur, 1<<20)) / 8
}

// begin takes over from a running daemon, or from a dead one.
func (d *daemon) begin(takeover bool) error {
	if takeover {
		err := d.takeOver()
		if err == nil || !errors.Is(err, errNobody) {
			return err
		}
	}
	if err := d.takeLock(); err != nil {
		return err
	}
	// A socket that is there belongs to nobody now.
	if err := os.Remove(d.dir.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket of a dead daemon: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.dir.socket(), Net: "unix"})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the socket %s cannot be made: %v", d.dir.socket(), err)
	}
	l.SetUnlinkOnClose(false)
	d.listener = l
	if err := os.Chmod(d.dir.socket(), 0o600); err != nil {
		return err
	}
	return d.revive()
}

func (d *daemon) takeLock() error {
	// One that was killed a moment ago may not have let go yet.
	ctx, cancel := context.WithTimeout(d.ctx, lockTimeout)
	defer cancel()
	f, err := lockFile(ctx, d.dir.lockFile())
	if fault.Is(err, fault.Timeout) {
		return fault.New(fault.Busy, "a network daemon runs on %s already", d.dir)
	}
	d.lock = f
	return err
}

// revive goes on with what the folder says is there.
func (d *daemon) revive() error {
	ids, err := d.dir.recorded()
	if err != nil {
		return err
	}
	for _, id := range ids {
		rec, err := d.dir.readRecord(id)
		var b *box
		if err == nil {
			b, err = d.newBox(id, rec)
		}
		if err == nil {
			b.stored = true
			d.boxes[id] = b
			err = b.revive()
		}
		if err != nil {
			// It stays closed; what is there is found by Leftovers.
			d.log.Error("go on with a sandbox", "sandbox", id, "err", err)
		}
	}
	d.log.Info("network daemon started", "build", d.build, "sandboxes", len(d.boxes))
	return nil
}

// serve answers calls until the daemon ends.
func (d *daemon) serve(ready func()) error {
	var wg sync.WaitGroup
	wg.Go(d.tick)
	unhook := context.AfterFunc(d.ctx, func() { d.listener.Close() })
	defer unhook()
	ready()
	err := d.acceptCalls(&wg)
	d.stop()
	wg.Wait()
	if d.handed.Load() {
		return nil // all of it belongs to somebody else
	}
	for _, b := range d.all() {
		b.op.Lock()
		if err := b.save(); err != nil {
			d.log.Error("save at the end", "err", err)
		}
		b.shut()
		b.names.close()
		b.op.Unlock()
	}
	os.Remove(d.dir.socket())
	d.lock.Close()
	return err
}

// tick does what has to be done now and then.
func (d *daemon) tick() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	saved := time.Now()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-t.C:
		}
		d.journal.settle()
		if time.Since(saved) < saveEvery {
			continue
		}
		saved = time.Now()
		d.saveTraffic()
	}
}

func (d *daemon) saveTraffic() {
	d.calls.RLock()
	defer d.calls.RUnlock()
	for _, b := range d.all() {
		b.op.Lock()
		if in, out := b.traffic(); !b.gone && !d.handed.Load() && (in != b.rec.In || out != b.rec.Out) {
			if err := b.save(); err != nil {
				d.log.Error("save traffic", "err", err)
			}
		}
		b.op.Unlock()
	}
}

// handing reports whether everything is being handed to another process.
func (d *daemon) handing() bool { return d.handed.Load() }

func (d *daemon) all() []*box {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*box, 0, len(d.boxes))
	for _, b := range d.boxes {
		all = append(all, b)
	}
	return all
}

// on runs an operation on the box of a sandbox; it is made when there is none
// and make is set. Without one, f is not called.
func (d *daemon) on(id string, make bool, f func(*box) error) error {
	if !driver.ValidID(id) {
		return fault.InvalidField("id", "%.80q is not the id of a sandbox", id)
	}
	for {
		d.mu.Lock()
		b := d.boxes[id]
		if b == nil && make {
			// Nothing is allowed until somebody says so.
			var err error
			if b, err = d.newBox(id, record{}); err != nil {
				d.mu.Unlock()
				return err
			}
			d.boxes[id] = b
		}
		d.mu.Unlock()
		if b == nil {
			return nil
		}
		b.op.Lock()
		if b.gone {
			b.op.Unlock()
			continue
		}
		err := f(b)
		b.op.Unlock()
		return err
	}
}

// detach forgets a sandbox.
func (d *daemon) detach(id string) error {
	return d.on(id, false, func(b *box) error {
		if err := b.detach(); err != nil {
			return err
		}
		b.gone = true
		d.mu.Lock()
		delete(d.boxes, id)
		d.mu.Unlock()
		d.journal.forget(id)
		return nil
	})
}
