package sandbox

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"unicode"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxSnapshotName bounds the name of a snapshot, which is for people alone.
const maxSnapshotName = 128

var tagRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ValidateTag checks the tag of a snapshot. Where a tag is written an id may
// stand as well, so no tag looks like one.
func ValidateTag(tag string) error {
	if !tagRule.MatchString(tag) {
		return fault.InvalidField("tag", "%q is not a tag: use 1 to 128 letters, digits, dots, hyphens and underscores, starting with a letter or a digit", clip(tag, 64))
	}
	for _, p := range []string{prefixSnapshot, prefixSandbox, prefixCheckpoint, prefixLayer, prefixExecution, prefixJob, "srt"} {
		if strings.HasPrefix(tag, p+"_") {
			return fault.InvalidField("tag", "%q looks like an id; choose another", clip(tag, 64))
		}
	}
	return nil
}

// validate checks a request and resolves its tag: afterwards an empty one
// means none.
func (r *SnapshotRequest) validate() error {
	if len(r.Name) > maxSnapshotName || strings.ContainsFunc(r.Name, unicode.IsControl) {
		return fault.InvalidField("name", "must be at most %d bytes in one line", maxSnapshotName)
	}
	if len(r.Description) > maxDescription {
		return fault.InvalidField("description", "longer than %d bytes", maxDescription)
	}
	for field, v := range map[string]string{"project": r.Project, "org": r.Org} {
		if v != "" && !projectRule.MatchString(v) {
			return fault.InvalidField(field, "%q is not an id: use 1 to 64 letters, digits, dots, hyphens and underscores", clip(v, 64))
		}
	}
	if err := validateMetadata(r.Metadata); err != nil {
		return err
	}
	switch r.Tag {
	case NoTag:
		r.Tag = ""
		return nil
	case "":
		r.Tag = DefaultTag
	}
	return ValidateTag(r.Tag)
}

func validateMetadata(m map[string]json.RawMessage) error {
	total := 0
	for k, v := range m {
		if !json.Valid(v) {
			return fault.InvalidField("metadata", "%q is not valid JSON", clip(k, 64))
		}
		total += len(k) + len(v)
	}
	if total > maxMetadata {
		return fault.InvalidField("metadata", "larger than %d bytes", maxMetadata)
	}
	return nil
}

// CreateSnapshot keeps the files of a sandbox.
func (a *Actor) CreateSnapshot(ctx context.Context, ref string, r SnapshotRequest) (Snapshot, error) {
	if err := r.validate(); err != nil {
		return Snapshot{}, err
	}
	s, unlock, err := a.withFiles(ctx, ref, "CreateSnapshot")
	if err != nil {
		return Snapshot{}, err
	}
	if err := a.mayLabel(ctx, r.Project, r.Org); err != nil {
		unlock()
		return Snapshot{}, err
	}
	defer unlock()
	e := a.e
	l, recorded, err := a.keepLayer(ctx, &s)
	if err != nil {
		return Snapshot{}, err
	}
	defer recorded()
	p := Snapshot{
		ID: e.cfg.NewID(prefixSnapshot), Name: r.Name, Tag: r.Tag, Description: r.Description, Public: r.Public,
		Owner: a.who.ID, Project: r.Project, Org: r.Org, SandboxID: s.ID, Parent: s.SnapshotID,
		Layer: l.ID, Driver: s.Driver, Runtime: s.Runtime, Metadata: r.Metadata,
		SizeBytes: l.SizeBytes, Files: l.Files, CreatedAt: e.cfg.Now(),
	}
	ev := e.event(s.ID, EventSnapshotCreate, a.who.ID, map[string]any{
		"snapshotId": p.ID, "name": p.Name, "tag": p.Tag, "sizeBytes": p.SizeBytes, "fileCount": p.Files,
	})
	if err := e.cfg.Store.CreateSnapshot(ctx, p, l, ev); err != nil {
		e.discardUnrecorded(l.ID)
		return Snapshot{}, err
	}
	e.pulse.beat()
	return p, nil
}

// withFiles returns the sandbox of ref, locked, when it has files that can be
// read: up, paused or suspended. It waits for one that is being made, and
// wakes none.
func (a *Actor) withFiles(ctx context.Context, ref string, op operation) (s Sandbox, unlock func(), err error) {
	if s, err = a.resolve(ctx, ref, op); err != nil {
		return s, nil, err
	}
	if s.Status.Live() {
		if err := a.e.mine(&s); err != nil {
			return s, nil, err
		}
	}
	if unlock, err = a.e.locks.lock(ctx, s.ID); err != nil {
		return s, nil, err
	}
	if s, err = a.e.cfg.Store.Sandbox(ctx, s.ID); err == nil && !s.Status.Up() && s.Status != Paused && s.Status != Suspended {
		err = s.notUp()
	}
	if err != nil {
		unlock()
		return s, nil, err
	}
	return s, unlock, nil
}

// snapshotBase is what a sandbox made from a snapshot starts from.
func (a *Actor) snapshotBase(ctx context.Context, ref string, op operation) (base, error) {
	e := a.e
	p, err := a.snapshot(ctx, ref, op)
	if err != nil {
		return base{}, err
	}
	if _, err := e.saver(); err != nil {
		return base{}, err
	}
	if err := e.readable(&p); err != nil {
		return base{}, err
	}
	l, err := e.cfg.Store.Layer(ctx, p.Layer)
	if err != nil {
		return base{}, err
	}
	b := base{runtime: p.Runtime, snapshot: p, layers: append([]string{l.ID}, l.Below...)}
	b.rootfs, err = e.rootfsOf(ctx, p.Runtime, b.layers)
	return b, err
}

// rootfsOf is the root filesystem of layers over the files a runtime had.
func (e *Engine) rootfsOf(ctx context.Context, runtime RuntimeRef, layers []string) (Rootfs, error) {
	rootfs, err := e.cfg.Images.ProvideDigest(ctx, runtime)
	if err != nil {
		return Rootfs{}, err
	}
	rootfs.Saved, err = e.savedDirs(layers)
	return rootfs, err
}

// readable refuses a snapshot whose files only another engine can read.
func (e *Engine) readable(p *Snapshot) error {
	if d := e.cfg.Driver.Name(); p.Driver != d {
		return fault.New(fault.Unsupported, "snapshot %s was made by the %s engine and this server runs %s; export it with --engine %s and import it here", p.ID, p.Driver, d, p.Driver).About("snapshot")
	}
	return nil
}
