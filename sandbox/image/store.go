package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

const (
	buildPrefix = "build-"
	// handOutGrace is how long a layer that Provide returned is kept from
	// Remove, for the caller to make and record a sandbox that uses it.
	handOutGrace = 15 * time.Minute
	// lockPoll is how often a lock held by another process is tried again.
	lockPoll = 100 * time.Millisecond
)

// layerStore keeps layers in a directory. Several processes may share it: a
// layer appears and disappears by rename, and a build holds a lock for as long
// as its process lives.
type layerStore struct {
	dir string
	now func() time.Time
	log *slog.Logger
	// forceRemove deletes a scratch directory that this process may not
	// delete by itself.
	forceRemove func(path string) error

	mu    sync.Mutex
	known map[string]Layer     // by runtime id
	out   map[string]time.Time // digest → last handed out
}

func openLayerStore(cfg Config) (*layerStore, error) {
	s := &layerStore{
		dir: cfg.Dir, now: cfg.Now, log: cfg.Log,
		forceRemove: func(path string) error { return removeAsSubuser(cfg.Mmdebstrap, path) },
		known:       make(map[string]Layer), out: make(map[string]time.Time),
	}
	for _, d := range []string{s.dir, s.refs(), s.locks()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, storeError(err, s.dir)
		}
	}
	if err := os.MkdirAll(s.empty(), 0o755); err != nil {
		return nil, storeError(err, s.dir)
	}
	if err := os.Chmod(s.empty(), 0o755); err != nil {
		return nil, storeError(err, s.dir)
	}
	if err := s.sweep(); err != nil {
		return nil, storeError(err, s.dir)
	}
	return s, nil
}

func storeError(err error, dir string) error {
	switch {
	case diskFull(err):
		return fault.Wrap(err, fault.Exhausted, "the disk that holds %s is full", dir)
	case errors.Is(err, os.ErrPermission):
		return fault.Wrap(err, fault.Denied, "%s cannot be used for layers: permission denied", dir)
	}
	return fault.Wrap(err, fault.Internal, "%s cannot be used for layers", dir)
}

func (s *layerStore) refs() string  { return filepath.Join(s.dir, "refs") }
func (s *layerStore) locks() string { return filepath.Join(s.dir, "locks") }

// empty is a directory with nothing in it, to show instead of another one.
func (s *layerStore) empty() string { return filepath.Join(s.dir, "empty") }

// current returns the layer a runtime stands for, if it is here.
func (s *layerStore) current(runtime string) (Layer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked(runtime)
}

// take is current for a caller that goes on to use the layer: from now on
// Remove leaves it alone for a while.
func (s *layerStore) take(runtime string) (Layer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.currentLocked(runtime)
	if ok {
		s.out[l.Digest] = s.now()
	}
	return l, ok
}

// hold keeps a layer from Remove for a while; false when it is gone already.
func (s *layerStore) hold(l Layer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isRealDir(l.Path) {
		return false
	}
	s.out[l.Digest] = s.now()
	return true
}

func (s *layerStore) currentLocked(runtime string) (Layer, bool) {
	if l, ok := s.known[runtime]; ok && isRealDir(l.Path) {
		return l, true
	}
	delete(s.known, runtime)
	l, err := s.layer(s.reference(runtime).Digest)
	if err != nil {
		return Layer{}, false
	}
	s.known[runtime] = l
	return l, true
}

// reference reads what a runtime stands for; the zero value when nothing.
func (s *layerStore) reference(runtime string) reference {
	var r reference
	if err := readJSON(filepath.Join(s.refs(), runtime), &r); err != nil {
		return reference{}
	}
	return r
}

// point makes a runtime stand for a layer, durably.
func (s *layerStore) point(runtime string, r reference) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	unlock, err := s.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeDurably(filepath.Join(s.refs(), runtime), data); err != nil {
		return fmt.Errorf("record the layer of %s: %w", runtime, err)
	}
	s.mu.Lock()
	delete(s.known, runtime)
	s.mu.Unlock()
	return nil
}

// currentDigests returns the digests that runtimes stand for.
func (s *layerStore) currentDigests() []string {
	entries, err := os.ReadDir(s.refs())
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if d := s.reference(e.Name()).Digest; d != "" {
			out = append(out, d)
		}
	}
	return out
}

// remove deletes the layer unless inUse objects or it was taken within
// handOutGrace.
func (s *layerStore) remove(hex string, inUse func() error) error {
	digest := "sha256:" + hex
	if err := inUse(); err != nil {
		return err
	}
	trash, err := s.moveAway(hex, func() error {
		if at, ok := s.out[digest]; ok && s.now().Sub(at) < handOutGrace {
			return fault.New(fault.Busy, "layer %s was given to a new sandbox a moment ago; try again in %s", digest, handOutGrace).About("layer")
		}
		return nil
	})
	if err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return f
		}
		return storeError(err, s.dir)
	}
	if err := s.removeTree(trash); err != nil {
		return storeError(err, s.dir)
	}
	return nil
}

// moveAway renames a layer to a name that the next sweep removes, if allowed
// says yes at the moment when nobody can take it any more.
func (s *layerStore) moveAway(hex string, allowed func() error) (string, error) {
	trash := filepath.Join(s.dir, buildPrefix+"removed-"+hex)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := allowed(); err != nil {
		return "", err
	}
	for id, l := range s.known {
		if l.Digest == "sha256:"+hex {
			delete(s.known, id)
		}
	}
	if err := os.RemoveAll(trash); err != nil {
		return "", err
	}
	return trash, os.Rename(filepath.Join(s.dir, hex), trash)
}
