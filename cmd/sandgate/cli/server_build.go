package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/auditlog"
	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/program"
	"github.com/sandgate/sandgate/sandbox/gvisor"
	"github.com/sandgate/sandgate/sandbox/image"
	"github.com/sandgate/sandgate/sandbox/store"
	"github.com/sandgate/sandgate/sshgw"
)

// serverConfig is what a server is started with.
type serverConfig struct {
	state   stateDir
	ssh     string // address to listen on; empty: no ssh
	http    string // address to listen on; empty: only the unix socket
	engine  string // "gvisor" or "docker"
	runtime string // default runtime; empty: base:latest
	quota   sandbox.Quota
	warm    int // sandboxes of the default runtime kept ready
	limits  sshgw.Limits
	// orgQuota bounds what one org has, trust is whom the server believes.
	orgQuota sandbox.Quota
	trust    trustConfig
	// sessions says how long sessions are kept, and what is recorded of them.
	sessions sessionConfig
	// auditLog is a file, "off", or empty for the default.
	auditLog      string
	auditCommands bool // keep the text of commands in it
	// noNetwork gives no sandbox a network.
	noNetwork bool
	// sshCompat offers old ssh clients more algorithms.
	sshCompat bool
	// noForwarding switches forwarding over ssh off.
	noForwarding bool
	log          *slog.Logger
	// notice tells the person who started the server something, a line at a time.
	notice func(format string, args ...any)
}

// server is everything one `sandgate serve` holds. Close releases it in the
// reverse order of its making; sandboxes go on.
type server struct {
	cfg      serverConfig
	engine   *sandbox.Engine
	driver   driver.Driver
	store    *store.Store
	images   *image.Catalog
	hostKeys atomic.Pointer[[]ssh.Signer] // see identity
	operator keys.Principal               // who the unix socket is
	network  *network                     // nil: sandboxes have none

	audit     *auditlog.Log // nil: none is kept
	visitors  *visitors
	reloads   []reloadable
	reloading sync.Mutex    // held while they are read
	gate      *sshgw.Server // nil without ssh

	streamSecret []byte                 // signs the URLs of output streams
	reconciled   sandbox.Reconciliation // what the start found

	socket  net.Listener
	sshLn   net.Listener
	httpLn  net.Listener
	closers []io.Closer
}

// newServer makes a server: state, database, driver, engine, and the
// listeners, in that order, so that a port in use leaves nothing behind. It
// reconciles before it returns; on error all is released.
func newServer(ctx context.Context, cfg serverConfig) (_ *server, err error) {
	s := &server{cfg: cfg}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if cfg.engine != "gvisor" && cfg.engine != "docker" {
		return nil, fault.InvalidField("--engine", "%q is not an engine: use gvisor or docker", cfg.engine)
	}
	if err := cfg.state.prepare(); err != nil {
		return nil, err
	}
	lock, err := cfg.state.lock()
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, lock)
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.operator = operator()
	if s.store, err = store.Open(ctx, store.Config{Path: cfg.state.database(), Log: cfg.log}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.store)
	hostKeys, err := keys.LoadOrCreateHostKeys(cfg.state.hostKeys())
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the host keys in %s cannot be used: %v", cfg.state.hostKeys(), rootCause(err))
	}
	s.hostKeys.Store(&hostKeys)
	if s.streamSecret, err = cfg.state.streamSecret(); err != nil {
		return nil, err
	}
	if err := s.openAudit(); err != nil {
		return nil, err
	}
	s.canReload("host keys", cfg.state.hostKeys(), s.reloadHostKeys)
	var why string
	if s.network, why = newNetwork(ctx, cfg); s.network == nil {
		cfg.log.Info("sandboxes get no network", "reason", why)
	} else {
		s.closers = append(s.closers, s.network)
	}
	if s.driver, err = newDriver(cfg, s.network); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.driver)
	if s.images, err = image.New(image.Config{Dir: cfg.state.layers(), Default: cfg.runtime, InUse: s.layersInUse, Log: cfg.log}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.images)
	path, digest, err := program.Install(cfg.state.guests())
	if err != nil {
		return nil, cfg.state.unusable(err)
	}
	ec := sandbox.Config{
		Driver: s.driver, Store: s.store, Images: s.images,
		Guest: driver.Guest{Path: path}, GuestDigest: digest,
		OutputDir: cfg.state.executions(), DefaultRuntime: cfg.runtime,
		DefaultLimits: defaultLimits(), StopGrace: time.Second, Log: cfg.log,
	}
	cfg.sessions.apply(&ec)
	ec.OrgQuota = cfg.orgQuota
	if ec.Trust, err = s.openTrust(); err != nil {
		return nil, err
	}
	ec.MemberQuota, ec.DiskFloor = cfg.quota, diskFloor(string(cfg.state))
	if s.network != nil {
		ec.Egress = s.network
	}
	if cfg.warm > 0 {
		ec.Warm = []sandbox.Warm{{Count: cfg.warm}}
	}
	ec.Audit, ec.AuditSink, ec.Reload = s.auditReader(), s.record, s.reload
	if s.engine, err = sandbox.NewEngine(ctx, ec); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.engine)
	s.visitors = newVisitors(s.engine.Visited)
	if s.reconciled, err = s.engine.Reconcile(ctx); err != nil {
		return nil, err
	}
	s.report(s.reconciled)
	if err := s.settleNetwork(ctx); err != nil {
		return nil, err
	}
	return s, s.firstKeys(ctx)
}

// Close releases what the server holds. Sandboxes go on.
func (s *server) Close() error {
	for _, c := range slices.Backward(s.closers) {
		if err := c.Close(); err != nil && !isClosed(err) {
			s.cfg.log.Warn("stop server", "err", err)
		}
	}
	s.closers = nil
	return nil
}

// newDriver makes the driver of the named engine; n may be nil.
func newDriver(cfg serverConfig, n *network) (driver.Driver, error) {
	dir := cfg.state.driverDir(cfg.engine)
	var net driver.Network
	if n != nil {
		net = n
	}
	if cfg.engine == "docker" {
		return docker.New(docker.Config{StateDir: dir, Network: net, Log: cfg.log})
	}
	return gvisor.New(gvisor.Config{StateDir: dir, Network: net, Log: cfg.log})
}

// layersInUse tells which sandboxes and snapshots use which layer of a runtime,
// by digest.
func (s *server) layersInUse(ctx context.Context) (map[string][]string, error) {
	all, _, err := s.store.Sandboxes(ctx, sandbox.SandboxFilter{Statuses: []sandbox.Status{sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Suspended, sandbox.Stopping, sandbox.Failed}})
	if err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, sb := range all {
		if sb.Runtime.Digest != "" {
			users[sb.Runtime.Digest] = append(users[sb.Runtime.Digest], sb.ID)
		}
	}
	snapshots, _, err := s.store.Snapshots(ctx, sandbox.SnapshotFilter{})
	if err != nil {
		return nil, err
	}
	for _, p := range snapshots {
		users[p.Runtime.Digest] = append(users[p.Runtime.Digest], p.ID)
	}
	return users, nil
}

// defaultLimits keep one sandbox from taking the host with it: half of the
// memory, and more processes than any honest build needs.
func defaultLimits() sandbox.Limits {
	l := sandbox.Limits{Processes: 8192}
	if total := hostMemory(); total > 0 {
		// Whole mebibytes read better wherever the limit is shown.
		l.MemoryBytes = total / 2 &^ (1<<20 - 1)
	}
	return l
}

// report tells what reconciliation found, where that is worth a line.
func (s *server) report(r sandbox.Reconciliation) {
	s.cfg.log.Info("reconciled", "adopted", r.Adopted, "suspended", r.Suspended, "lost", r.Lost, "removed", r.Removed, "executions", r.Executions, "leftovers", len(r.Leftovers))
	for _, l := range r.Leftovers {
		s.cfg.log.Info("removed a leftover", "what", l)
	}
	if r.Adopted > 0 {
		s.cfg.notice("%d sandboxes run on, with %d commands in them", r.Adopted, r.Executions)
	}
	if r.Lost > 0 {
		s.cfg.notice("%d sandboxes were lost while the server was away; `sandgate list` says why", r.Lost)
	}
}

// firstKeys registers the starting user's own public keys when no key is
// registered at all, and says what it did or what to do.
func (s *server) firstKeys(ctx context.Context) error {
	actor := s.engine.As(s.operator)
	have, err := actor.ListKeys(ctx)
	if err != nil || len(have) > 0 {
		return err
	}
	home, _ := os.UserHomeDir()
	own, skipped := keys.OwnPublicKeys(ctx, home, os.Getenv("SSH_AUTH_SOCK"))
	for _, k := range own {
		k.Key.Principal, k.Key.Role = s.operator.ID, keys.Admin
		if _, err := actor.AddKey(ctx, k.Key); err != nil {
			if fault.Is(err, fault.Exists) {
				continue
			}
			return err
		}
		s.cfg.notice("registered your key %s (%s) as admin %q", k.Key.Fingerprint, k.Source, s.operator.ID)
	}
	for _, k := range skipped {
		s.cfg.log.Debug("key not registered", "source", k.Source, "reason", k.Reason)
	}
	if len(own) == 0 {
		s.cfg.notice("no ssh key is registered and none was found: nobody can come in by ssh yet.\nMake one and register it:\n  ssh-keygen -t ed25519\n  sandgate key add ~/.ssh/id_ed25519.pub")
	}
	return nil
}

// diskFloor is what of the disk stays free: a twentieth, and at most 2 GiB.
func diskFloor(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return min(int64(st.Blocks)*st.Bsize/20, 2<<30)
}

// hostMemory is the memory of this machine in bytes, 0 when unknown.
func hostMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := sandbox.ParseBytes(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}
