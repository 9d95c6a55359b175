package sandbox

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Create makes a sandbox and returns when it is up: the record, then the
// driver's sandbox, then its guest, then the files. If a step fails or ctx
// ends, all of it is taken back and only a record of the failure stays.
func (a *Actor) Create(ctx context.Context, r CreateRequest) (Created, error) {
	e := a.e
	if err := a.allow("Create"); err != nil {
		return Created{}, err
	}
	if err := r.validate(e.caps); err != nil {
		return Created{}, err
	}
	if a.who.ID == "" {
		return Created{}, fault.New(fault.Denied, "sandboxes can be made by a known principal only")
	}
	if err := e.checkNetwork(&r, a.who); err != nil {
		return Created{}, err
	}
	if r.Mode == Oneshot {
		if err := a.allow("Execute"); err != nil {
			return Created{}, err
		}
	}
	if err := a.enclose(&r.Project); err != nil {
		return Created{}, err
	}
	if err := a.label(ctx, r.Project, &r.Org); err != nil {
		return Created{}, err
	}
	limits := r.Limits.withDefaults(e.cfg.DefaultLimits, e.caps)
	room, err := e.claim(ctx, a.who, &Sandbox{Owner: a.who.ID, Org: r.Org, Limits: limits}, limits.asked())
	if err != nil {
		return Created{}, err
	}
	defer room.drop()
	if r.Name != "" {
		if err := a.nameFree(ctx, r.Name); err != nil {
			return Created{}, err
		}
	}
	from, err := a.base(ctx, r, "Create")
	if err != nil {
		return Created{}, err
	}

	now := e.cfg.Now()
	s := Sandbox{
		ID: e.cfg.NewID(prefixSandbox), Name: r.Name, Description: r.Description, Mode: r.Mode,
		Status: Creating, Owner: a.who.ID, Project: r.Project, Org: r.Org, Driver: e.cfg.Driver.Name(),
		Runtime: from.runtime, SnapshotID: from.snapshot.ID, SnapshotTag: from.snapshot.Tag, Layers: from.layers,
		Limits: limits, Env: r.Env, Metadata: r.Metadata, Port: r.Port, Network: r.network(),
		Timeouts: r.Timeouts, Command: r.Command, Guest: e.cfg.GuestDigest,
		CreatedAt: now, UpdatedAt: now, ActiveAt: now,
	}
	if id, ok := e.takeWarm(&s, from.rootfs); ok {
		s.ID = id
		defer e.returnWarm(id)
	}
	ctx, done, err := e.creation(ctx, s.ID)
	if err != nil {
		return Created{}, err
	}
	defer done()
	data := map[string]any{"runtime": s.Runtime.Name, "mode": string(r.Mode), "name": r.Name}
	if s.SnapshotID != "" {
		data["snapshotId"] = s.SnapshotID
	}
	if s, err = e.raise(ctx, room, s, from.rootfs, r.Files, a.who.ID, e.event(s.ID, EventCreate, a.who.ID, data)); err != nil {
		return Created{}, err
	}
	made := Created{Sandbox: s}
	if r.Mode != Oneshot {
		return made, nil
	}
	x, err := e.execute(ctx, s, ExecRequest{Command: r.Command, Timeout: r.Timeouts.Execution, Stdin: r.Stdin}, a.who.ID)
	if err != nil {
		cleanup, stop := context.WithTimeout(context.WithoutCancel(ctx), e.cleanupTime())
		defer stop()
		if derr := e.destroyLocked(cleanup, s.ID, Failed, fault.From(err).Error(), "system"); derr != nil {
			e.cfg.Log.Warn("remove a sandbox whose command did not start", "sandbox", s.ID, "err", derr)
		}
		return Created{}, err
	}
	if r.Attended {
		e.attended(x.ID)
	}
	made.Execution = &x
	if made.Sandbox, err = e.cfg.Store.Sandbox(ctx, s.ID); err != nil {
		return Created{}, err
	}
	return made, nil
}

// base is what a new sandbox starts from.
type base struct {
	runtime  RuntimeRef
	rootfs   Rootfs
	snapshot Snapshot // zero without one
	layers   []string // ids of the saved layers, the topmost first
}

// base finds what a request starts from: a snapshot or a runtime.
func (a *Actor) base(ctx context.Context, r CreateRequest, op operation) (base, error) {
	if r.Snapshot != "" {
		return a.snapshotBase(ctx, r.Snapshot, op)
	}
	want := r.Runtime
	if want == "" {
		want = r.RuntimeID
	}
	if want == "" {
		want = a.e.cfg.DefaultRuntime
	}
	progress := r.Progress
	if progress == nil {
		progress = func(string) {}
	}
	rt, rootfs, err := a.e.cfg.Images.Provide(ctx, want, progress)
	if err != nil {
		return base{}, err
	}
	return base{runtime: RuntimeRef{
		ID: rt.ID, Name: rt.Name, IconURL: rt.IconURL, BrandColor: rt.BrandColor, Tags: rt.Tags, Source: rt.Source, Digest: rootfs.Digest,
	}, rootfs: rootfs}, nil
}

// creation begins the making of a sandbox: it is locked, and whoever deletes it
// meanwhile ends the context. The caller calls done at the end.
func (e *Engine) creation(ctx context.Context, id string) (_ context.Context, done func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	unlock, err := e.locks.lock(ctx, id)
	if err != nil {
		cancel()
		return ctx, nil, err
	}
	e.setCreating(id, cancel)
	return ctx, func() {
		e.setCreating(id, nil)
		unlock()
		cancel()
	}, nil
}

// raise records a new sandbox and makes it: when it returns nil the sandbox is
// up, and otherwise only a record of the failure stays. The caller has called
// creation, and has room for it.
func (e *Engine) raise(ctx context.Context, room *claim, s Sandbox, rootfs Rootfs, files []File, by string, created Event) (Sandbox, error) {
	if err := room.settle(ctx, func() error { return e.cfg.Store.CreateSandbox(ctx, s, created) }); err != nil {
		return s, err
	}
	e.pulse.beat()
	if err := e.boot(ctx, s, rootfs, files); err != nil {
		e.abortCreate(s.ID, err)
		return s, err
	}
	up, err := e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		return []Event{e.event(s.ID, EventLifecycleStarted, by, nil)}, s.moveTo(Idle, "")
	})
	if err != nil {
		e.abortCreate(s.ID, err)
		return s, err
	}
	e.watch(s.ID)
	return up, nil
}

// nameFree refuses a name early, before anything long is begun. The store
// decides for good when the record is written.
func (a *Actor) nameFree(ctx context.Context, name string) error {
	_, n, err := a.e.cfg.Store.Sandboxes(ctx, SandboxFilter{Owner: a.who.ID, Name: name, LiveOnly: true, Limit: 1})
	if err != nil {
		return err
	}
	if n > 0 {
		return &fault.Error{Code: fault.Exists, Kind: "sandbox", Field: "name", Message: "you have a sandbox named " + name + " already; choose another name or delete it"}
	}
	return nil
}

// boot makes and starts the driver's sandbox and writes the files.
func (e *Engine) boot(ctx context.Context, s Sandbox, rootfs Rootfs, files []File) error {
	if !e.useWarm(ctx, s.ID) {
		if err := e.cfg.Driver.Create(ctx, e.spec(&s, rootfs)); err != nil {
			return err
		}
		if err := e.allowNetwork(ctx, &s); err != nil {
			return err
		}
		if err := e.cfg.Driver.Start(ctx, s.ID); err != nil {
			return err
		}
	}
	conn, err := e.conns.get(ctx, s.ID)
	if err != nil {
		return err
	}
	return writeFiles(ctx, conn, files)
}

func writeFiles(ctx context.Context, conn *guest.Conn, files []File) error {
	for _, f := range files {
		mode := fs.FileMode(f.Mode)
		if mode == 0 {
			mode = 0o644
		}
		if err := conn.WriteFile(ctx, f.Path, mode, strings.NewReader(string(f.Content))); err != nil {
			return err
		}
	}
	return nil
}

// abortCreate takes back what boot has made and records why.
func (e *Engine) abortCreate(id string, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), e.cleanupTime())
	defer cancel()
	e.conns.drop(id)
	if err := e.cfg.Driver.Remove(ctx, id); err != nil {
		e.cfg.Log.Error("remove a sandbox that could not be made", "sandbox", id, "err", err)
	}
	reason := fault.From(cause).Error()
	_, err := e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		s.EndedAt = e.cfg.Now()
		return []Event{e.event(id, EventLifecycleFailed, "system", map[string]any{"reason": reason})}, s.moveTo(Failed, reason)
	})
	if err != nil {
		e.cfg.Log.Error("record a sandbox that could not be made", "sandbox", id, "err", err)
	}
	e.cfg.Log.Warn("create sandbox", "sandbox", id, "err", cause, "cause", fault.From(cause).Cause)
}

// setCreating registers how to call off a creation; nil unregisters.
func (e *Engine) setCreating(id string, cancel context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cancel == nil {
		delete(e.creating, id)
		return
	}
	e.creating[id] = cancel
}

// environment is what a process in the sandbox gets besides the guest's base.
func (s *Sandbox) environment(extra []string) []string {
	env := make([]string, 0, len(s.Env)+len(extra)+1)
	env = append(env, "SANDGATE_SANDBOX="+s.ID)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, k+"="+s.Env[k])
	}
	return append(env, extra...)
}
