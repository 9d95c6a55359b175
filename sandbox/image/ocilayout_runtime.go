package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// OpenRuntime implements sandbox.Archives.
func (c *Catalog) OpenRuntime(ctx context.Context, runtime sandbox.RuntimeRef) (io.ReadCloser, error) {
	if c.ofHost(runtime) {
		return nil, fault.New(fault.Unsupported, "%s is made of this machine's own programs, which cannot be exported; make the snapshot from base:latest", runtime.Name).About("runtime")
	}
	l, err := c.layers.layer(runtime.Digest)
	if err != nil || !c.layers.hold(l) {
		return nil, goneRuntime(err, runtime)
	}
	pr, pw := io.Pipe()
	t := &treeStream{PipeReader: pr, done: make(chan struct{})}
	ctx, t.cancel = context.WithCancel(ctx)
	go func() {
		defer close(t.done)
		w := treeWriter{tar: tar.NewWriter(pw), root: l.Path, unprivileged: c.cfg.Unprivileged, links: make(map[uint64]string)}
		err := w.write(ctx)
		if err == nil {
			err = w.tar.Close()
		}
		pw.CloseWithError(err)
	}()
	return t, nil
}

// treeStream is a tree that is being written as an archive.
type treeStream struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (t *treeStream) Close() error {
	t.cancel()
	err := t.PipeReader.Close()
	<-t.done
	return err
}

// treeWriter writes a layer of the store as a tar archive: in the order of
// names, numbers for owners, and no more than the extractor keeps.
type treeWriter struct {
	tar          *tar.Writer
	root         string
	unprivileged bool
	links        map[uint64]string // inode → first name
}

func (w *treeWriter) write(ctx context.Context) error {
	return filepath.WalkDir(w.root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == w.root {
			return err
		}
		rel, err := filepath.Rel(w.root, path)
		if err != nil {
			return err
		}
		if err := w.entry(path, filepath.ToSlash(rel)); err != nil {
			return fmt.Errorf("archive %.200q: %w", rel, err)
		}
		return nil
	})
}

func (w *treeWriter) entry(path, name string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("no owner")
	}
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: fi.ModTime(), Format: tar.FormatPAX,
	}
	if w.unprivileged { // everything is this user's, and stands for root's
		h.Uid, h.Gid = 0, 0
	}
	switch {
	case fi.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fi.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	case fi.Mode().IsRegular():
		if st.Nlink > 1 {
			if first, ok := w.links[st.Ino]; ok {
				h.Typeflag, h.Linkname = tar.TypeLink, first
				return w.tar.WriteHeader(h)
			}
			w.links[st.Ino] = name
		}
		return w.file(path, h, fi.Size())
	default:
		return nil // the extractor makes none
	}
	return w.tar.WriteHeader(h)
}

func (w *treeWriter) file(path string, h *tar.Header, size int64) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var capability [64]byte
	if n, err := unix.Fgetxattr(int(f.Fd()), capabilityXattr, capability[:]); err == nil && n > 0 {
		h.PAXRecords = map[string]string{"SCHILY.xattr." + capabilityXattr: string(capability[:n])}
	}
	h.Typeflag, h.Size = tar.TypeReg, size
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w.tar, f)
	return err
}

// ImportRuntime implements sandbox.Archives. The files become a layer like any
// other, under the digest that they are found to have; no runtime of the
// catalog stands for them.
func (c *Catalog) ImportRuntime(ctx context.Context, runtime sandbox.RuntimeRef, r io.Reader, limit int64) (string, error) {
	b, err := c.layers.begin()
	if err != nil {
		return "", archiveError(ctx, err, limit)
	}
	defer b.discard()
	bounds := c.cfg.Bounds
	bounds.Bytes = min(bounds.Bytes, limit)
	x, err := newExtractor(b.root, c.cfg.Unprivileged, bounds)
	if err != nil {
		return "", archiveError(ctx, err, limit)
	}
	err = x.layer(ctx, r, true)
	x.close()
	if err == nil {
		err = finishRoot(b.root)
	}
	if errors.Is(err, errHostile) {
		return "", refused("its runtime holds %v", errors.Unwrap(err))
	}
	if err != nil {
		return "", archiveError(ctx, err, limit)
	}
	l, err := b.commit(ctx, Layer{Runtime: runtime.ID, Source: "imported: " + runtime.Source, MadeAt: c.cfg.Now().UTC()}, true)
	if err != nil {
		return "", archiveError(ctx, err, limit)
	}
	c.layers.hold(l)
	return l.Digest, nil
}
