package sandbox

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Config is what an Engine is made of. Driver, Store, Images, Guest and
// OutputDir are required.
type Config struct {
	Driver driver.Driver
	Store  Store
	Images RootfsProvider
	// Guest is the program new sandboxes get as PID 1; GuestDigest names it.
	Guest       driver.Guest
	GuestDigest string
	// OutputDir keeps what executions print, one folder each.
	OutputDir string
	// LayersDir keeps saved layers, in one folder for each driver; default: the
	// folder "saved" beside OutputDir.
	LayersDir string
	// Archives reads and writes exported snapshots; default: Images, where it
	// can.
	Archives Archives

	// DefaultRuntime is used when a request names none.
	DefaultRuntime string
	// DefaultLimits apply to fields a request leaves zero, where the driver
	// can enforce them.
	DefaultLimits Limits
	// ExecTimeout ends executions that set no timeout of their own; default 5m.
	ExecTimeout time.Duration
	// OutputCap is how many bytes of each output stream of an execution are
	// kept; default 16 MiB.
	OutputCap int64
	// OutputRetention is how long output is kept after its last byte when the
	// command has ended (default 7 days), and OutputPerSandbox how much of one
	// sandbox is kept, the newest first (default 256 MiB).
	OutputRetention  time.Duration
	OutputPerSandbox int64
	// Record says which sessions are recorded (default RecordOptIn), and
	// RecordInput whether what is typed may be, for those who ask for it.
	Record      RecordPolicy
	RecordInput bool
	// RecordingsDir keeps recordings; default: the folder "recordings" beside
	// OutputDir. A recording is kept for RecordingsKeep after its end (default
	// 30 days), and of all together RecordingsMax, the newest (default 5 GiB).
	RecordingsDir  string
	RecordingsKeep time.Duration
	RecordingsMax  int64
	// MaxQueued bounds the executions that wait in one sandbox; default 32.
	MaxQueued int
	// MaxJobs bounds the jobs that run in one sandbox; default 64.
	MaxJobs int
	// JobGrace is how long a job has between SIGTERM and SIGKILL; default 10s.
	JobGrace time.Duration
	// MaxPerMember bounds the live sandboxes of one member where MemberQuota
	// does not; default 100.
	MaxPerMember int
	// MemberQuota and OrgQuota bound what one member has live, and one org.
	MemberQuota, OrgQuota Quota
	// AttendGrace is how long an attended command goes on while nobody attends
	// it; default 15s.
	AttendGrace time.Duration
	// SessionKeep is how long a session goes on while nobody controls it;
	// default 24h, and without an end when it is negative. It is one value for
	// all: whether a session has a name of its own says nothing of what runs in
	// it.
	SessionKeep time.Duration
	// MaxSessions bounds the live sessions of one sandbox (default 64), and
	// MaxViewers the clients of one session (default 32).
	MaxSessions, MaxViewers int
	// DiskFloor is how many bytes of the disk that holds LayersDir stay free:
	// with less, nothing new is made. 0 is none.
	DiskFloor int64
	// Egress decides where sandboxes may go; nil: there is no network.
	Egress Egress
	// Trust decides about certificates and revoked keys; nil: no certificate is
	// accepted and no key revoked.
	Trust *keys.Trust
	// Audit reads the audit log, and Reload has the server read its files anew;
	// nil: there is none.
	Audit  AuditReader
	Reload func(ctx context.Context, by string) (Reload, error)
	// AuditSink takes the records of what is changed through the engine; nil:
	// there is none. It may be called by any goroutine and does not block.
	AuditSink func(AuditRecord)
	// Warm is what is kept ready for whoever creates a sandbox; see KeepWarm.
	Warm []Warm
	// StopGrace is how long processes have to end when a sandbox is deleted.
	StopGrace time.Duration

	Now   func() time.Time
	NewID func(prefix string) string
	Log   *slog.Logger
}

// Engine holds the state machine of all sandboxes of one server. It is safe
// for concurrent use. Use [Engine.As] to do anything with it.
type Engine struct {
	cfg   Config
	caps  driver.Capabilities
	locks keyedMutex
	conns *connPool
	pulse *pulse

	refusals auditRefusals
	warm     *warmPool

	restores restores

	// ctx ends everything that runs in the background; tasks counts it.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu         sync.Mutex
	active     map[string]*command   // executions and jobs under way, by their id
	busy       map[string]string     // sandbox id → execution id that holds it
	queues     map[string][]*command // sandbox id → executions that wait for it
	jobs       map[string]int        // sandbox id → jobs that run in it
	kept       map[string]int64      // sandbox id → bytes of output kept, as far as counted
	creating   map[string]context.CancelFunc
	activity   map[string]*activity // by sandbox id
	watched    map[string]bool
	claims     claims
	unrecorded unrecorded
	attendance attendance
	meters     meters
	unsaved    map[string]func(*Execution) // ends of executions the store has not taken yet
	// unsavedJobs are those of jobs.
	unsavedJobs map[string]func(*Job)

	sessions sessionTable
	recorder sessionRecorder // nil records nothing

	recordings *recordings

	hub *hub // events for those who subscribe
}

// NewEngine makes an Engine. Nothing happens until Reconcile or an operation.
func NewEngine(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = NewID
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.ExecTimeout == 0 {
		cfg.ExecTimeout = 5 * time.Minute
	}
	if cfg.OutputCap == 0 {
		cfg.OutputCap = 16 << 20
	}
	if cfg.OutputRetention == 0 {
		cfg.OutputRetention = 7 * 24 * time.Hour
	}
	if cfg.OutputPerSandbox == 0 {
		cfg.OutputPerSandbox = 256 << 20
	}
	if cfg.Record == "" {
		cfg.Record = RecordOptIn
	}
	if !cfg.Record.Valid() {
		return nil, fault.InvalidField("record", "%q is not a policy: use %s, %s or %s", cfg.Record, RecordNever, RecordOptIn, RecordAlways)
	}
	if cfg.RecordingsDir == "" {
		cfg.RecordingsDir = filepath.Join(filepath.Dir(cfg.OutputDir), "recordings")
	}
	if cfg.RecordingsKeep == 0 {
		cfg.RecordingsKeep = 30 * 24 * time.Hour
	}
	if cfg.RecordingsMax == 0 {
		cfg.RecordingsMax = 5 << 30
	}
	if cfg.MaxQueued == 0 {
		cfg.MaxQueued = 32
	}
	if cfg.MaxJobs == 0 {
		cfg.MaxJobs = 64
	}
	if cfg.JobGrace == 0 {
		cfg.JobGrace = 10 * time.Second
	}
	if cfg.AttendGrace == 0 {
		cfg.AttendGrace = 15 * time.Second
	}
	if cfg.SessionKeep == 0 {
		cfg.SessionKeep = 24 * time.Hour
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 64
	}
	if cfg.MaxViewers == 0 {
		cfg.MaxViewers = 32
	}
	if cfg.MaxPerMember == 0 {
		cfg.MaxPerMember = 100
	}
	if cfg.MemberQuota.Sandboxes == 0 {
		cfg.MemberQuota.Sandboxes = cfg.MaxPerMember
	}
	if cfg.DefaultRuntime == "" {
		cfg.DefaultRuntime = "base:latest"
	}
	if cfg.LayersDir == "" {
		cfg.LayersDir = filepath.Join(filepath.Dir(cfg.OutputDir), "saved")
	}
	if cfg.Archives == nil {
		cfg.Archives, _ = cfg.Images.(Archives)
	}
	caps, err := cfg.Driver.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range []Quota{cfg.MemberQuota, cfg.OrgQuota} {
		if err := q.checkQuota(caps); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(cfg.OutputDir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "cannot make the folder %s", cfg.OutputDir)
	}
	if err := os.MkdirAll(filepath.Join(cfg.LayersDir, cfg.Driver.Name()), 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "cannot make the folder %s", cfg.LayersDir)
	}
	e := &Engine{
		cfg: cfg, caps: caps, pulse: newPulse(), warm: newWarmPool(),
		active: map[string]*command{}, busy: map[string]string{}, queues: map[string][]*command{},
		jobs: map[string]int{}, kept: map[string]int64{}, unsavedJobs: map[string]func(*Job){},
		creating: map[string]context.CancelFunc{}, activity: map[string]*activity{}, watched: map[string]bool{},
		unsaved: map[string]func(*Execution){},
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.conns = newConnPool(cfg.Driver)
	e.hub = newHub(e)
	if e.recordings, err = newRecordings(e); err != nil {
		return nil, err
	}
	e.recorder = e.recordings
	return e, nil
}

// As binds the engine to a principal. All that can be done is done by an Actor.
func (e *Engine) As(p keys.Principal) *Actor { return &Actor{e: e, who: p} }

// Capabilities tells what the driver can do on this host.
func (e *Engine) Capabilities() driver.Capabilities { return e.caps }

// Run does the engine's standing work until ctx ends: it enforces the idle and
// paused timeouts and notes what sandboxes use. Call Reconcile first.
func (e *Engine) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	every := func(d time.Duration, f func(context.Context)) {
		work.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				f(ctx)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	every(5*time.Second, e.Reap)
	every(sampleEvery, e.Sample)
	every(keepAll, e.trimSamples)
	every(trimEvery, e.TrimOutput)
	every(trimEvery, e.TrimRecordings)
	work.Go(func() { e.KeepWarm(ctx) })
	return nil
}

// Close stops what the engine does in the background and waits for it. The
// sandboxes and everything in them go on; those that were only kept ready are
// removed.
func (e *Engine) Close() error {
	e.cancel()
	e.closeWarm()
	e.conns.closeAll()
	e.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), sampleTime)
	defer cancel()
	e.saveSamples(ctx)
	return nil
}

// background runs f until it returns; Close waits for it.
func (e *Engine) background(f func(ctx context.Context)) {
	e.tasks.Go(func() { f(e.ctx) })
}

// update changes a record, notes the events and wakes whoever waits for it.
func (e *Engine) update(ctx context.Context, id string, change func(*Sandbox) ([]Event, error)) (Sandbox, error) {
	s, err := e.cfg.Store.UpdateSandbox(ctx, id, func(s *Sandbox) ([]Event, error) {
		evs, err := change(s)
		if err == nil {
			s.UpdatedAt = e.cfg.Now()
		}
		return evs, err
	})
	if err == nil {
		e.pulse.beat()
	}
	return s, err
}

func (e *Engine) event(sandboxID string, t EventType, principal string, data map[string]any) Event {
	return Event{ID: e.cfg.NewID(prefixEvent), SandboxID: sandboxID, Type: t, Principal: principal, Data: data, At: e.cfg.Now()}
}
