package docker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A restore makes another container, whose image has the saved layer on top,
// and then says in the record that it is the sandbox. That is the moment: what
// a crash leaves before it belongs to the new container, and after it to the
// old one. The driver keeps the saved layer itself too, because it is part of
// the private layer that a later Save has to find.

// Restore implements driver.Saver.
func (d *Driver) Restore(ctx context.Context, id, dir string) error {
	unlock, o, r, err := d.saveable(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if o.state() == driver.Running {
		return fault.New(fault.State, "sandbox %s runs; stop it before its files are replaced", id).About("sandbox")
	}
	if _, err := readSaved(dir); err != nil {
		return err
	}
	d.setHalfway(id, true)
	defer d.setHalfway(id, false)
	// What an attempt that a crash cut short has left has the names that are
	// needed now.
	if err := d.removeOthers(ctx, id, r.Generation); err != nil {
		return err
	}
	next := r
	next.Generation++
	if s := d.status(id, o); s.State == driver.Stopped {
		next.Exit = &s.Exit
	}
	err = d.makeGeneration(ctx, id, next, o, dir)
	if err == nil {
		err = d.replaceRecord(id, next)
	}
	keep := next.Generation
	if err != nil {
		keep = r.Generation
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if rerr := d.removeOthers(settle, id, keep); rerr != nil {
		d.log.Warn("parts of a sandbox before or after its restore are left over", "sandbox", id, "error", rerr)
	}
	return err
}

// makeGeneration makes the container that is to become the sandbox.
func (d *Driver) makeGeneration(ctx context.Context, id string, next record, o observed, dir string) error {
	if err := copySaved(dir, d.restored(id, next.Generation)); err != nil {
		return diskFault(err, "the saved layer cannot be copied")
	}
	cfg := *o.Config
	return d.makeContainer(ctx, id, next, &cfg, limitsOf(o.HostConfig))
}

// copySaved gives a saved layer, which never changes, a second name where that
// is possible.
func copySaved(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, name := range []string{layerFile, noteFile} {
		err := os.Link(filepath.Join(from, name), filepath.Join(to, name))
		if err != nil {
			err = copyFile(filepath.Join(from, name), filepath.Join(to, name))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(syncDir(to), syncDir(filepath.Dir(to)))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// removeOthers removes all that a sandbox has of other generations.
func (d *Driver) removeOthers(ctx context.Context, id string, generation int) error {
	if err := d.removeContainers(ctx, id, d.containerOf(id, generation)); err != nil {
		return err
	}
	if err := d.removeVolumes(ctx, id, func(name string) bool { return !d.ofGeneration(name, id, generation) }); err != nil {
		return err
	}
	return d.removeRestored(ctx, id, generation)
}

// ofGeneration reports whether a volume of a sandbox belongs to a generation.
func (d *Driver) ofGeneration(volume, id string, generation int) bool {
	return strings.HasPrefix(volume, d.containerOf(id, generation)+"-")
}

// removeRestored removes the layers that a sandbox was restored from, with
// their images, but for that of one generation; -1 keeps none.
func (d *Driver) removeRestored(ctx context.Context, id string, keep int) error {
	left, err := d.restoredOf(id)
	if err != nil {
		return err
	}
	for _, dir := range left {
		if keep > 0 && dir == d.restored(id, keep) {
			continue
		}
		if err := d.removeImagesOf(ctx, dir); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return diskFault(err, "the state folder cannot be written")
		}
	}
	return nil
}

// restoredOf lists the layers that were kept for a sandbox, or for any.
func (d *Driver) restoredOf(id string) ([]string, error) {
	entries, err := os.ReadDir(d.own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskFault(err, "the state folder cannot be read")
	}
	var dirs []string
	for _, e := range entries {
		if of, _, ok := strings.Cut(e.Name(), "."); ok && of != "" && (id == "" || of == id) {
			dirs = append(dirs, filepath.Join(d.own, e.Name()))
		}
	}
	return dirs, nil
}

// emptyLayer is the archive of a layer that changes nothing.
func emptyLayer() io.Reader { return strings.NewReader(strings.Repeat("\x00", 1024)) }
