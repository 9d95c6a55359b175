package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// build is a layer in the making: a directory of the store that is locked for
// as long as this process works on it. Either commit or discard ends it.
type build struct {
	s       *layerStore
	dir     string
	root    string // the tree
	lock    *os.File
	scratch string // a directory elsewhere, may be empty
}

const (
	scratchRecord = "scratch"
	scratchPrefix = "sandgate-build-"
)

// begin makes an empty build.
func (s *layerStore) begin() (*build, error) {
	unlock, err := s.lockStore()
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(s.dir, buildPrefix)
	if err != nil {
		return nil, err
	}
	b := &build{s: s, dir: dir, root: filepath.Join(dir, "root")}
	if b.lock, err = os.Open(dir); err == nil {
		err = tryLock(b.lock)
	}
	if err == nil {
		err = b.reset()
	}
	if err != nil {
		b.discard()
		return nil, err
	}
	return b, nil
}

// reset empties the tree, for another attempt.
func (b *build) reset() error {
	if err := os.RemoveAll(b.root); err != nil {
		return err
	}
	if err := os.Mkdir(b.root, 0o755); err != nil {
		return err
	}
	return os.Chmod(b.root, 0o755) // whatever the umask is
}

// makeScratch makes a directory below parent that others may pass through. Its
// name is on record before it exists, so a sweep finds it after a crash.
func (b *build) makeScratch(parent string) (string, error) {
	b.removeScratch()
	path := filepath.Join(parent, scratchPrefix+strings.TrimPrefix(filepath.Base(b.dir), buildPrefix))
	if err := os.WriteFile(filepath.Join(b.dir, scratchRecord), []byte(path), 0o600); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, 0o711); err != nil {
		return "", err
	}
	b.scratch = path
	return path, os.Chmod(path, 0o711)
}

func (b *build) removeScratch() {
	if b.scratch == "" {
		return
	}
	if err := b.s.removeTree(b.scratch); err != nil {
		b.s.log.Warn("a scratch directory was left behind", "path", b.scratch, "err", err)
	}
	b.scratch = ""
}

// discard removes what there is of the build. After commit it does nothing.
func (b *build) discard() {
	if b.dir == "" {
		return
	}
	b.removeScratch()
	if err := b.s.removeTree(b.dir); err != nil {
		b.s.log.Warn("a build was left behind; the next start removes it", "path", b.dir, "err", err)
	}
	b.release()
}

func (b *build) release() {
	b.dir = ""
	if b.lock != nil {
		b.lock.Close()
	}
}

// commit turns the build into a layer: digested, synced to disk if durable is
// asked for, renamed into place. When the same tree is here already and is
// intact, that one is returned.
func (b *build) commit(ctx context.Context, l Layer, durable bool) (Layer, error) {
	b.removeScratch()
	if err := os.Remove(filepath.Join(b.dir, scratchRecord)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Layer{}, err
	}
	sum, err := digestTree(ctx, b.root)
	if err != nil {
		return Layer{}, fmt.Errorf("digest the new layer: %w", err)
	}
	l.Digest, l.Size, l.Files = sum.digest, sum.bytes, sum.files
	hex, _ := hexOf(sum.digest)
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return Layer{}, err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "meta.json"), data, 0o600); err != nil {
		return Layer{}, err
	}
	if durable {
		// The rename must not become durable before what it points to.
		if err := b.s.sync(); err != nil {
			return Layer{}, err
		}
	}
	if err := b.place(ctx, hex, durable); err != nil {
		return Layer{}, fmt.Errorf("put the new layer in its place: %w", err)
	}
	return b.s.layer(l.Digest)
}

// place renames the build to its digest.
func (b *build) place(ctx context.Context, hex string, durable bool) error {
	unlock, err := b.s.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	target := filepath.Join(b.s.dir, hex)
	if exists(target) {
		if l, err := b.s.layer("sha256:" + hex); err == nil {
			if sum, err := digestTree(ctx, l.Path); err == nil && sum.digest == l.Digest {
				b.discard()
				return nil
			}
		}
		trash, err := b.s.moveAway(hex, func() error { return ctx.Err() })
		if err != nil {
			return err
		}
		if err := b.s.removeTree(trash); err != nil {
			return err
		}
	}
	if err := os.Rename(b.dir, target); err != nil {
		return err
	}
	b.release()
	if !durable {
		return nil
	}
	return syncDir(b.s.dir)
}

// sync writes everything in the store to disk: one call for thousands of files.
func (s *layerStore) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync the layers: %w", err)
	}
	return nil
}

// removeBuild removes an abandoned build with the scratch directory it had.
func (s *layerStore) removeBuild(dir string) error {
	if data, err := os.ReadFile(filepath.Join(dir, scratchRecord)); err == nil {
		path := string(data)
		if filepath.IsAbs(path) && strings.HasPrefix(filepath.Base(path), scratchPrefix) {
			if err := s.removeTree(path); err != nil {
				s.log.Warn("a scratch directory was left behind", "path", path, "err", err)
			}
		}
	}
	return s.removeTree(dir)
}

// removeTree deletes a directory, also when parts of it belong to another
// user of this user's range.
func (s *layerStore) removeTree(path string) error {
	err := os.RemoveAll(path)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		if s.forceRemove(path) == nil {
			return os.RemoveAll(path)
		}
	}
	return err
}

// writeDurably replaces a small file so that a crash leaves the old or the new
// one. Only one writer of a path may be at work.
func writeDurably(path string, data []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
