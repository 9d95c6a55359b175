package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// A saved layer is a directory with one thing in it: for a host overlay the
// tree, which is mounted below the private layer of whoever uses it, and for
// gVisor's own file an archive in the neutral form, as a plain user cannot own
// files in anybody else's name.
const (
	savedTree    = "upper"
	savedArchive = "layer.tar"
)

// Save implements driver.Saver.
func (d *Driver) Save(ctx context.Context, id, dir string) error {
	h, err := d.lock(ctx, id)
	if err != nil {
		return err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return broken(err, id)
	}
	err = makeSaved(dir, func(tmp string) error {
		if r.Storage == sentryFile {
			return d.saveArchive(ctx, h.box, r, tmp, d.running(ctx, id))
		}
		return d.saveTree(ctx, h.box, r, tmp, d.running(ctx, id))
	})
	if errors.Is(err, errDown) {
		return notRunning(id)
	}
	return d.failure(err, "saved", id)
}

// makeSaved makes a saved layer in one step: fill gets a new directory, which
// becomes dir when it has returned.
func makeSaved(dir string, fill func(tmp string) error) error {
	if !filepath.IsAbs(dir) {
		return fault.InvalidField("directory", "%q is not absolute", dir)
	}
	exists := fault.New(fault.Exists, "there is a saved layer already at %s", dir)
	if _, err := os.Lstat(dir); err == nil {
		return exists
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	err := os.Mkdir(tmp, 0o700)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		// fill has made what is in it durable, but not the directory itself.
		err = syncDir(tmp)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	}
	if err == nil {
		return syncDir(filepath.Dir(dir))
	}
	if errors.Is(err, fs.ErrExist) {
		err = exists
	}
	return errors.Join(err, os.RemoveAll(tmp))
}

// saveTree copies the private layer of a host overlay.
func (d *Driver) saveTree(ctx context.Context, b box, r *record, tmp string, running bool) error {
	p, err := b.openPrivate(r)
	if err != nil {
		return err
	}
	defer p.close()
	upper, err := p.upper()
	if err != nil {
		return err
	}
	to := filepath.Join(tmp, savedTree)
	take := func() error {
		_, err := layer.CopyTreeNoSync(ctx, upper, to)
		return err
	}
	if running {
		err = d.still(ctx, b, take)
	} else {
		err = take()
	}
	if err != nil {
		return err
	}
	if err := b.removeOurs(r, to); err != nil {
		return err
	}
	return layer.Sync(to)
}

// Restore implements driver.Saver.
func (d *Driver) Restore(ctx context.Context, id, dir string) error {
	h, err := d.lock(ctx, id)
	if err != nil {
		return err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return broken(err, id)
	}
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	if d.running(ctx, id) {
		return fault.New(fault.State, "sandbox %s runs; stop it first", id).About("sandbox")
	}
	if err := checkSaved(dir, r.Storage); err != nil {
		return err
	}
	// Where processes of an earlier life are not quite gone, mounts are not.
	l := h.readLife()
	if err := d.settle(ctx, h.box, r, &l); err != nil {
		return d.failure(err, "restored", id)
	}
	switch {
	case r.Storage == sentryFile:
		err = h.useSaved(ctx, append([]string{dir}, r.Spec.Rootfs.Saved...))
	case r.Spec.Limits.DiskBytes > 0:
		err = h.restoreDisk(ctx, r, filepath.Join(dir, savedTree))
	default:
		err = h.restoreTree(ctx, filepath.Join(dir, savedTree))
	}
	return d.failure(err, "restored", id)
}

// restoreTree exchanges the private layer for a copy of a saved tree.
func (b box) restoreTree(ctx context.Context, from string) error {
	upper, other := filepath.Join(b.data(), upperDir), filepath.Join(b.data(), upperDir+halfMade)
	if err := os.RemoveAll(other); err != nil {
		return err
	}
	if err := os.Mkdir(upper, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := layer.CopyTree(ctx, from, other); err != nil {
		return err
	}
	if err := b.discardImage(); err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, upper, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange the private layer: %w", err)
	}
	return errors.Join(syncDir(b.data()), os.RemoveAll(other))
}

// restoreDisk makes a new disk image with a copy of a saved tree: on the old
// one there may be no room for both.
func (b box) restoreDisk(ctx context.Context, r *record, from string) error {
	image := b.disk() + halfMade
	if err := os.Remove(image); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := makeDisk(ctx, image, r.Spec.Limits.DiskBytes)
	if err == nil {
		err = fillDisk(ctx, image, from)
	}
	if err == nil {
		err = b.discardImage()
	}
	if err == nil {
		err = os.Rename(image, b.disk())
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(image))
	}
	return syncDir(b.dir)
}

func fillDisk(ctx context.Context, image, from string) error {
	p, err := openDisk(image)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := layer.CopyTree(ctx, from, p.path(upperDir)); err != nil {
		if fault.Is(err, fault.Exhausted) {
			return fault.Wrap(err, fault.Exhausted, "the saved files do not fit the disk of the sandbox")
		}
		return err
	}
	if err := p.sync(); err != nil {
		return err
	}
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Export implements driver.Saver.
func (d *Driver) Export(ctx context.Context, dir string, w io.Writer) error {
	if err := checkSaved(dir, d.host().storage); err != nil {
		return err
	}
	if d.host().storage == hostOverlay {
		return d.failure(layer.WriteOverlay(ctx, filepath.Join(dir, savedTree), w, layer.Options{}), "exported", filepath.Base(dir))
	}
	return d.failure(exportArchive(ctx, dir, w), "exported", filepath.Base(dir))
}

// Import implements driver.Saver.
func (d *Driver) Import(ctx context.Context, dir string, r io.Reader, limit int64) error {
	err := makeSaved(dir, func(tmp string) error {
		if d.host().storage == hostOverlay {
			return layer.ReadOverlay(ctx, r, filepath.Join(tmp, savedTree), layer.Limits{Bytes: limit, Sync: true})
		}
		return importArchive(ctx, tmp, r, limit)
	})
	return d.failure(err, "imported", filepath.Base(dir))
}

// Discard implements driver.Saver. It takes the layer away in one step.
func (d *Driver) Discard(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	if !filepath.IsAbs(dir) {
		return fault.InvalidField("directory", "%q is not absolute", dir)
	}
	gone := dir + ".gone"
	err := os.RemoveAll(gone)
	if err == nil {
		if err = os.Rename(dir, gone); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return d.failure(errors.Join(err, os.RemoveAll(gone), os.RemoveAll(dir+".new")), "discarded", filepath.Base(dir))
}

// checkSaved returns an Invalid fault when dir holds no saved layer of this
// kind of storage.
func checkSaved(dir string, s storage) error {
	name, want := savedTree, fs.ModeDir
	if s == sentryFile {
		name, want = savedArchive, 0
	}
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || info.Mode().Type() != want || !filepath.IsAbs(dir) {
		return fault.New(fault.Invalid, "%s holds no saved layer", dir)
	}
	return nil
}
