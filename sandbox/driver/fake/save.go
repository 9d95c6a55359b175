package fake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

var _ driver.Saver = (*Driver)(nil)

// A saved layer of the fake is one archive in the neutral form. The private
// layer of a sandbox is its workspace, which hides any other below it.
const archiveName = "layer.tar"

// Save implements driver.Saver.
func (d *Driver) Save(ctx context.Context, id, dir string) error {
	if err := d.enter(ctx, Save, driver.FeatureSave); err != nil {
		return err
	}
	return d.locked(ctx, id, func(b *box) error {
		if b.status().State == driver.Broken {
			return fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
		}
		return fill(dir, func(f *os.File) error {
			if r := b.current(); r != nil {
				r.freeze()
				defer r.thaw()
			}
			return b.writeLayer(ctx, f)
		})
	})
}

// writeLayer writes the workspace as a layer that says all of it.
func (b *box) writeLayer(ctx context.Context, w io.Writer) error {
	var files, below bytes.Buffer
	outside := func(p string) bool { return p != "/workspace" && !strings.HasPrefix(p, "/workspace/") }
	if err := layer.WriteOverlay(ctx, b.dir, &files, layer.Options{Skip: outside}); err != nil {
		return err
	}
	if err := layer.WriteOverlay(ctx, b.gone(), &below, layer.Options{}); err != nil {
		return err
	}
	return layer.Merge(ctx, w, bytes.NewReader(files.Bytes()), bytes.NewReader(below.Bytes()))
}

// gone is a layer without a workspace.
func (b *box) gone() string { return filepath.Join(b.dir, "gone") }

// fill makes a saved layer: it is complete and durable, or not there.
func fill(dir string, write func(f *os.File) error) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return fault.Wrap(err, fault.Exists, "the saved layer exists")
		}
		return fault.Wrap(err, fault.Internal, "the fake host cannot make a folder")
	}
	err := func() error {
		f, err := os.OpenFile(filepath.Join(dir, archiveName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := write(f); err != nil {
			return err
		}
		return f.Sync()
	}()
	if err == nil {
		return nil
	}
	if left := os.RemoveAll(dir); left != nil {
		err = errors.Join(err, left)
	}
	return fault.From(err)
}

// open opens a saved layer.
func openSaved(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, archiveName))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%q holds no saved layer", path.Base(dir)).About("layer")
	}
	return f, nil
}

// Restore implements driver.Saver.
func (d *Driver) Restore(ctx context.Context, id, dir string) error {
	if err := d.enter(ctx, Restore, driver.FeatureSave); err != nil {
		return err
	}
	return d.locked(ctx, id, func(b *box) error {
		switch b.status().State {
		case driver.Created, driver.Stopped:
		default:
			return fault.New(fault.State, "sandbox %s is %s; stop it first", id, b.status().State).About("sandbox")
		}
		if err := b.layDown(ctx, append([]string{dir}, b.spec.Rootfs.Saved...)); err != nil {
			return err
		}
		b.discardImage()
		return nil
	})
}

// layDown makes the workspace what saved layers, the topmost first, say.
func (b *box) layDown(ctx context.Context, saved []string) error {
	if len(saved) == 0 {
		return nil
	}
	var files []io.ReadSeeker
	for _, dir := range saved {
		f, err := openSaved(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	var flat bytes.Buffer
	if err := layer.Flatten(ctx, &flat, files...); err != nil {
		return err
	}
	next := filepath.Join(b.dir, "next")
	if err := layer.ReadOverlay(ctx, &flat, next, layer.Limits{}); err != nil {
		return err
	}
	err := removeTree(b.workspace())
	if err == nil {
		err = os.MkdirAll(filepath.Join(next, "workspace"), 0o755)
	}
	if err == nil {
		err = os.Rename(filepath.Join(next, "workspace"), b.workspace())
	}
	if err = errors.Join(err, removeTree(next)); err != nil {
		return fault.Wrap(err, fault.Internal, "the fake host cannot replace the files")
	}
	return nil
}

// Export implements driver.Saver.
func (d *Driver) Export(ctx context.Context, dir string, w io.Writer) error {
	if err := d.enter(ctx, Export, driver.FeatureSave); err != nil {
		return err
	}
	f, err := openSaved(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		return fault.From(err)
	}
	return nil
}

// Import implements driver.Saver. The way through the other form checks all
// that there is, and makes the archive one of ours.
func (d *Driver) Import(ctx context.Context, dir string, r io.Reader, limit int64) error {
	if err := d.enter(ctx, Import, driver.FeatureSave); err != nil {
		return err
	}
	return fill(dir, func(f *os.File) error {
		checked, err := os.CreateTemp(dir, "checked-*")
		if err != nil {
			return err
		}
		defer checked.Close()
		if err := os.Remove(checked.Name()); err != nil {
			return err
		}
		if err := layer.ToUpper(ctx, r, checked, layer.Limits{Bytes: limit}); err != nil {
			return err
		}
		return layer.FromUpper(ctx, checked, f, layer.Options{})
	})
}

// Discard implements driver.Saver.
func (d *Driver) Discard(ctx context.Context, dir string) error {
	if err := d.enter(ctx, Discard, driver.FeatureSave); err != nil {
		return err
	}
	if err := removeTree(dir); err != nil {
		return fault.Wrap(err, fault.Internal, "the fake host cannot delete a folder")
	}
	return nil
}
