package sandbox

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The folder of a saved layer appears before its record and goes after it, so
// a crash at any moment leaves a complete layer or a folder without a record,
// which Reconcile removes.

// saver is the driver's way to keep files, or the reason why there is none.
func (e *Engine) saver() (driver.Saver, error) {
	s, ok := e.cfg.Driver.(driver.Saver)
	support := e.caps.Support[driver.FeatureSave]
	if !ok || !support.OK {
		reason := support.Reason
		if reason == "" || support.OK {
			reason = "it does not offer it"
		}
		return nil, fault.New(fault.Unsupported, "the %s engine cannot keep the files of sandboxes on this server: %s", e.cfg.Driver.Name(), reason).About("snapshot")
	}
	return s, nil
}

// layersDir is where the layers of this driver are.
func (e *Engine) layersDir() string { return filepath.Join(e.cfg.LayersDir, e.cfg.Driver.Name()) }

func (e *Engine) layerDir(id string) string { return filepath.Join(e.layersDir(), id) }

// savedDirs are the folders of layers, in their order.
func (e *Engine) savedDirs(ids []string) ([]string, error) {
	dirs := make([]string, 0, len(ids))
	for _, id := range ids {
		dir := e.layerDir(id)
		if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
			return nil, fault.Wrap(err, fault.Unavailable, "the files of layer %s are not in %s any more; restore them from a backup", id, e.layersDir()).About("snapshot")
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// saveLayer keeps the private files of a sandbox in a new layer, which has no
// record yet. The caller holds the lock of the sandbox.
func (e *Engine) saveLayer(ctx context.Context, s *Sandbox) (Layer, error) {
	saver, err := e.saver()
	if err != nil {
		return Layer{}, err
	}
	l := Layer{
		ID: e.cfg.NewID(prefixLayer), Driver: s.Driver, Below: s.Layers,
		RuntimeDigest: s.Runtime.Digest, CreatedAt: e.cfg.Now(),
	}
	if err := e.diskSpace(); err != nil {
		return Layer{}, err
	}
	if err := saver.Save(ctx, s.ID, e.layerDir(l.ID)); err != nil {
		return Layer{}, err
	}
	if l.SizeBytes, l.Files, err = e.measure(ctx, l.ID); err != nil {
		e.discard(l.ID)
		return Layer{}, err
	}
	return l, nil
}

// measure counts what is in a layer: bytes of regular files, and entries that
// are no directory.
func (e *Engine) measure(ctx context.Context, id string) (bytes int64, files int, err error) {
	r, err := e.openLayer(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	content := bufio.NewReaderSize(r, 1<<20) // skipped in small steps
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, content) // the driver may have to say something at the end
			return bytes, files, err
		}
		if err != nil {
			return 0, 0, err
		}
		if h.Typeflag != tar.TypeDir && !strings.HasPrefix(path.Base(h.Name), whiteoutPrefix) {
			files++
			bytes += h.Size
		}
	}
}

// whiteoutPrefix marks a deletion in an OCI layer.
const whiteoutPrefix = ".wh."

// openLayer streams a layer in its OCI form. Close ends the export.
func (e *Engine) openLayer(ctx context.Context, id string) (io.ReadCloser, error) {
	saver, err := e.saver()
	if err != nil {
		return nil, err
	}
	dirs, err := e.savedDirs([]string{id})
	if err != nil {
		return nil, err
	}
	return stream(ctx, func(ctx context.Context, w io.Writer) error { return saver.Export(ctx, dirs[0], w) }), nil
}

// stream is what write writes. Close ends the writing and waits for its end.
func stream(ctx context.Context, write func(context.Context, io.Writer) error) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	s := &written{PipeReader: pr, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		pw.CloseWithError(write(ctx, pw)) // nil is the end of the stream
	}()
	return s
}

// written is a stream that is being written.
type written struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *written) Close() error {
	s.cancel()
	err := s.PipeReader.Close()
	<-s.done
	return err
}

// discard removes the files of a layer that no record names.
func (e *Engine) discard(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), e.cleanupTime())
	defer cancel()
	saver, err := e.saver()
	if err == nil {
		err = saver.Discard(ctx, e.layerDir(id))
	}
	if err != nil {
		e.cfg.Log.Error("remove a saved layer; the next start tries again", "layer", id, "err", err, "cause", fault.From(err).Cause)
	}
}

// discardUnrecorded removes the files of a layer whose record could not be
// written, unless it was written after all.
func (e *Engine) discardUnrecorded(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), e.cleanupTime())
	defer cancel()
	if _, err := e.cfg.Store.Layer(ctx, id); fault.Is(err, fault.NotFound) {
		e.discard(id)
	}
}

// dropLayers forgets those of the layers that nothing names any more, and then
// removes their files. A layer must come before those under it.
func (e *Engine) dropLayers(ids ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), e.cleanupTime())
	defer cancel()
	for _, id := range ids {
		l, err := e.cfg.Store.Layer(ctx, id)
		if err == nil && l.Driver != e.cfg.Driver.Name() {
			continue // a server with that engine removes it
		}
		if err == nil {
			err = e.cfg.Store.DeleteLayer(ctx, id)
		}
		switch {
		case err == nil:
			e.discard(id)
		case fault.Is(err, fault.State), fault.Is(err, fault.NotFound): // in use, or gone already
		default:
			e.cfg.Log.Error("forget a saved layer; the next start tries again", "layer", id, "err", err)
		}
	}
}

// dropSaved removes what was kept of a sandbox that has ended: its checkpoints,
// and the layers nothing else was made from.
func (e *Engine) dropSaved(ctx context.Context, s Sandbox) {
	e.restores.forget(s.ID)
	kept, err := e.cfg.Store.Checkpoints(ctx, s.ID)
	if err != nil {
		e.cfg.Log.Error("list the checkpoints of a sandbox that ended", "sandbox", s.ID, "err", err)
		return
	}
	var layers []string
	for _, c := range kept {
		if err := e.cfg.Store.DeleteCheckpoint(ctx, c.ID); err != nil && !fault.Is(err, fault.NotFound) {
			e.cfg.Log.Error("delete a checkpoint of a sandbox that ended", "sandbox", s.ID, "checkpoint", c.ID, "err", err)
			continue
		}
		layers = append(layers, c.Layer)
	}
	e.dropLayers(append(layers, s.Layers...)...)
}

// reconcileLayers makes the records of layers and their folders agree after a
// start.
func (e *Engine) reconcileLayers(ctx context.Context) error {
	if _, err := e.saver(); err != nil {
		return nil // nothing was ever kept here
	}
	kept, err := e.cfg.Store.Checkpoints(ctx, "")
	if err != nil {
		return err
	}
	for _, c := range kept {
		s, err := e.cfg.Store.Sandbox(ctx, c.SandboxID)
		if err == nil && !s.Status.Live() {
			err = e.cfg.Store.DeleteCheckpoint(ctx, c.ID)
		}
		if err != nil {
			return err
		}
	}
	all, err := e.cfg.Store.Layers(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		e.dropLayers(l.ID)
	}
	if all, err = e.cfg.Store.Layers(ctx); err != nil {
		return err
	}
	return e.sweepLayers(all)
}

// sweepLayers removes folders without a record and what an import left.
func (e *Engine) sweepLayers(recorded []Layer) error {
	entries, err := os.ReadDir(e.layersDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Unavailable, "the folder %s cannot be read", e.layersDir())
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case strings.HasPrefix(name, scratchPrefix):
			if err := os.RemoveAll(filepath.Join(e.layersDir(), name)); err != nil {
				e.cfg.Log.Warn("remove what an import left", "folder", name, "err", err)
			}
		case strings.HasPrefix(name, prefixLayer+"_") && !slices.ContainsFunc(recorded, func(l Layer) bool { return l.ID == name }):
			e.cfg.Log.Warn("remove a saved layer without a record", "layer", name)
			e.discard(name)
		}
	}
	return nil
}
