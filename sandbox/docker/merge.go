package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// writeTar writes the merged view of layers, the topmost first, to w: what an
// overlay mount of them would show. Owners, modes, times, links, devices and
// extended attributes are kept; sockets are left out, as nobody listens on
// them. The same layers always give the same bytes.
func writeTar(ctx context.Context, w io.Writer, layers []string) error {
	m := &merger{ctx: ctx, tar: tar.NewWriter(w), links: make(map[inode]string), copy: make([]byte, 128<<10)}
	if len(layers) > 0 {
		if err := m.entry(".", layers[0]); err != nil {
			return err
		}
		if err := m.dir(".", layers); err != nil {
			return err
		}
	}
	return m.tar.Close()
}

type merger struct {
	ctx   context.Context
	tar   *tar.Writer
	links map[inode]string // first name of every file that has several
	copy  []byte
}

type inode struct{ dev, ino uint64 }

// dir writes what the directory name holds. From lists its incarnations in
// the layers that take part, the topmost first.
func (m *merger) dir(name string, from []string) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	children := make(map[string]*child)
	for _, dir := range from {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("read a layer: %w", err)
		}
		for _, e := range entries {
			c := children[e.Name()]
			if c == nil {
				c = &child{}
				children[e.Name()] = c
			}
			if err := c.add(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if opaque, err := isOpaque(dir); err != nil {
			return err
		} else if opaque {
			break
		}
	}
	names := make([]string, 0, len(children))
	for n, c := range children {
		if len(c.paths) > 0 {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		full := filepath.Join(name, n)
		if strings.HasPrefix(n, ".wh.") {
			return fault.New(fault.Invalid, "the layers contain %q, a name that the docker engine takes for a mark of deletion", full)
		}
		c := children[n]
		if err := m.entry(full, c.paths[0]); err != nil {
			return err
		}
		if c.isDir {
			if err := m.dir(full, c.paths); err != nil {
				return err
			}
		}
	}
	return nil
}

// child is one name in a directory, as the layers above have made it.
type child struct {
	paths  []string // one, or for a directory all that are merged
	isDir  bool
	closed bool // lower layers have no say any more
}

// add takes the next lower layer's idea of the name.
func (c *child) add(path string) error {
	if c.closed {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("read a layer: %w", err)
	}
	switch {
	case isWhiteout(info):
		c.closed = true
	case info.IsDir():
		c.isDir = true
		c.paths = append(c.paths, path)
		if c.closed, err = isOpaque(path); err != nil {
			return err
		}
	case c.isDir: // a file below a directory is hidden by it
		c.closed = true
	default:
		c.paths = []string{path}
		c.closed = true
	}
	return nil
}

// isWhiteout reports whether a file stands for one that was deleted.
func isWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// isOpaque reports whether a directory hides what lower layers have in it.
func isOpaque(dir string) (bool, error) {
	for _, name := range []string{"trusted.overlay.", "user.overlay."} {
		for _, unknown := range []string{"redirect", "metacopy"} {
			if _, ok := xattr(dir, name+unknown); ok {
				return false, fault.New(fault.Invalid, "the layer directory %q uses overlayfs %s, which cannot be read as files", dir, unknown)
			}
		}
		if v, ok := xattr(dir, name+"opaque"); ok && string(v) == "y" {
			return true, nil
		}
	}
	return false, nil
}

// entry writes one file, without what is in it if it is a directory.
func (m *merger) entry(name, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("read a layer: %w", err)
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	var target string
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return fmt.Errorf("read a layer: %w", err)
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("describe %s: %w", path, err)
	}
	// Numbers alone count in a sandbox, and the rest is not of the content.
	h.Uname, h.Gname, h.Format = "", "", tar.FormatPAX
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	h.Name = name
	if info.IsDir() {
		h.Name += "/"
	}
	st := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() && st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first, ok := m.links[key]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return m.tar.WriteHeader(h)
		}
		m.links[key] = name
	}
	if err := addXattrs(h, path); err != nil {
		return err
	}
	if err := m.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	return m.content(path, h.Size)
}

// content writes exactly the size that was announced.
func (m *merger) content(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a layer: %w", err)
	}
	defer f.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{m.tar}, io.LimitReader(f, size), m.copy)
	if err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	if n != size {
		return fault.New(fault.Internal, "the layer file %s has changed while it was read", path)
	}
	return nil
}

// addXattrs copies the extended attributes that mean something to a sandbox;
// overlayfs's own are not of the content.
func addXattrs(h *tar.Header, path string) error {
	size, err := unix.Llistxattr(path, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the attributes of %s: %w", path, err)
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(path, list); err != nil {
		return fmt.Errorf("list the attributes of %s: %w", path, err)
	}
	for name := range bytes.SplitSeq(list[:size], []byte{0}) {
		key := string(name)
		if !strings.HasPrefix(key, "user.") && key != "security.capability" || strings.HasPrefix(key, "user.overlay.") {
			continue
		}
		if v, ok := xattr(path, key); ok {
			if h.PAXRecords == nil {
				h.PAXRecords = make(map[string]string)
			}
			h.PAXRecords["SCHILY.xattr."+key] = string(v)
		}
	}
	return nil
}

// xattr returns an extended attribute, and whether the file has it.
func xattr(path, name string) ([]byte, bool) {
	size, err := unix.Lgetxattr(path, name, nil)
	if err != nil {
		return nil, false
	}
	b := make([]byte, size)
	n, err := unix.Lgetxattr(path, name, b)
	if err != nil {
		return nil, false
	}
	return b[:n], true
}
