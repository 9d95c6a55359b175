package gvisor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// Saved layers of the storage sentryFile. gVisor starts from one archive in a
// form of its own, so the saved layers that a sandbox uses are merged into
// that, and what it writes is no layer over them any more but all of them
// together. Saving puts that right as far as it shows: what the sandbox
// deleted of them is marked. Only the bytes of its files are there twice.

// saveArchive keeps what gVisor has of a sandbox, or had when it stopped.
func (d *Driver) saveArchive(ctx context.Context, b box, r *record, tmp string, running bool) error {
	upper, err := d.openUpper(ctx, b, tmp, running)
	if err != nil {
		return err
	}
	whole, err := scratch(tmp)
	if err != nil {
		upper.Close()
		return err
	}
	defer whole.Close()
	err = layer.FromUpper(ctx, upper, whole, layer.Options{Skip: func(p string) bool { return p == "/"+keepFile }})
	upper.Close()
	if err != nil {
		return err
	}
	if len(r.Spec.Rootfs.Saved) == 0 {
		return writeArchive(tmp, func(w io.Writer) error {
			r, err := rewind(whole)
			if err == nil {
				_, err = io.Copy(w, r)
			}
			return err
		})
	}
	deleted, err := deletedOf(ctx, tmp, whole, r.Spec.Rootfs.Saved)
	if err != nil {
		return err
	}
	return writeArchive(tmp, func(w io.Writer) error { return layer.Merge(ctx, w, whole, bytes.NewReader(deleted)) })
}

// openUpper returns what gVisor has written, as an archive in its form.
func (d *Driver) openUpper(ctx context.Context, b box, tmp string, running bool) (*os.File, error) {
	if !running {
		f, err := os.Open(b.saved())
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	f, err := scratch(tmp)
	if err != nil {
		return nil, err
	}
	if running {
		err = d.still(ctx, b, func() error { return d.writeUpper(ctx, b.id(), f) })
	} else { // it has never run
		err = layer.MergeToUpper(ctx, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// scratch makes a file that has no name.
func scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "scratch-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// rewind makes what was written to a file readable.
func rewind(f *os.File) (io.Reader, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read back: %w", err)
	}
	return f, nil
}

// deletedOf returns a layer of marks for everything that the saved layers have
// and the archive over them has not.
func deletedOf(ctx context.Context, tmp string, whole *os.File, saved []string) ([]byte, error) {
	below, err := scratch(tmp)
	if err != nil {
		return nil, err
	}
	defer below.Close()
	if err := mergeSaved(ctx, saved, func(layers ...io.ReadSeeker) error { return layer.Merge(ctx, below, layers...) }); err != nil {
		return nil, err
	}
	before, err := entries(ctx, below)
	if err != nil {
		return nil, err
	}
	after, err := entries(ctx, whole)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(after))
	for _, e := range after {
		there[e.Path] = true
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range before {
		// What lies in a deleted directory needs no mark of its own.
		if e.Deleted || there[e.Path] || !there[path.Dir(e.Path)] && e.Path != "/" {
			continue
		}
		dir, base := path.Split(strings.TrimPrefix(e.Path, "/"))
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dir + ".wh." + base, Mode: 0o600}); err != nil {
			return nil, fmt.Errorf("mark what is deleted: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("mark what is deleted: %w", err)
	}
	return out.Bytes(), nil
}

func entries(ctx context.Context, f *os.File) ([]layer.Entry, error) {
	r, err := rewind(f)
	if err != nil {
		return nil, err
	}
	return layer.Entries(ctx, r)
}

// mergeSaved opens the archives of saved layers, the topmost first.
func mergeSaved(ctx context.Context, saved []string, merge func(layers ...io.ReadSeeker) error) error {
	var layers []io.ReadSeeker
	for _, dir := range saved {
		f, err := os.Open(filepath.Join(dir, savedArchive))
		if err != nil {
			return fmt.Errorf("open saved layer: %w", err)
		}
		defer f.Close()
		layers = append(layers, f)
	}
	return merge(layers...)
}

// writeArchive makes the archive of a saved layer, durably.
func writeArchive(dir string, write func(w io.Writer) error) error {
	return writeWhole(filepath.Join(dir, savedArchive), write)
}

// writeWhole replaces a file in one step, durably.
func writeWhole(name string, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// useSaved makes the archive that gVisor starts from out of saved layers.
func (b box) useSaved(ctx context.Context, saved []string) error {
	return writeWhole(b.saved(), func(w io.Writer) error {
		err := mergeSaved(ctx, saved, func(layers ...io.ReadSeeker) error { return layer.MergeToUpper(ctx, w, layers...) })
		if err != nil {
			return err
		}
		// A memory image has the files in it as they were.
		return b.discardImage()
	})
}

func exportArchive(ctx context.Context, dir string, w io.Writer) error {
	f, err := os.Open(filepath.Join(dir, savedArchive))
	if err != nil {
		return err
	}
	defer f.Close()
	return layer.Merge(ctx, w, f) // which is in the one form there is, and ends with ctx
}

// importArchive takes an archive from anywhere: by way of gVisor's form, which
// it has to have one day, into the neutral one as it is written here.
func importArchive(ctx context.Context, tmp string, r io.Reader, limit int64) error {
	upper, err := scratch(tmp)
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := layer.ToUpper(ctx, r, upper, layer.Limits{Bytes: limit}); err != nil {
		return err
	}
	return writeArchive(tmp, func(w io.Writer) error { return layer.FromUpper(ctx, upper, w, layer.Options{}) })
}
