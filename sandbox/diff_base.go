package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// baseFiles are the files of a runtime, read where they lie on this host: its
// layers, and the host directories shown in it. No symbolic link is followed.
type baseFiles struct {
	ctx    context.Context
	rootfs Rootfs
	kinds  map[string]fs.FileMode // of paths on the host that were looked at as parents
}

func newBaseFiles(ctx context.Context, rootfs Rootfs) *baseFiles {
	return &baseFiles{ctx: ctx, rootfs: rootfs, kinds: make(map[string]fs.FileMode)}
}

// same reports whether two bases hold the same files.
func (b *baseFiles) same(o *baseFiles) bool {
	return b.rootfs.Digest == o.rootfs.Digest && slices.Equal(b.rootfs.Layers, o.rootfs.Layers) && slices.Equal(b.rootfs.HostDirs, o.rootfs.HostDirs)
}

// roots lists where a path may lie on the host, the topmost first, as a root
// and the path below it.
func (b *baseFiles) roots(p string) [][2]string {
	best := -1
	for i, d := range b.rootfs.HostDirs { // the innermost, and of two the later one
		if (p == d.Target || strings.HasPrefix(p, d.Target+"/")) && (best < 0 || len(d.Target) >= len(b.rootfs.HostDirs[best].Target)) {
			best = i
		}
	}
	if best >= 0 {
		d := b.rootfs.HostDirs[best]
		return [][2]string{{d.Source, strings.TrimPrefix(p, d.Target)}}
	}
	var all [][2]string
	for _, l := range b.rootfs.Layers {
		all = append(all, [2]string{l, p})
	}
	return all
}

// locate returns the file of a path on the host, and its status.
func (b *baseFiles) locate(p string) (string, fs.FileInfo, error) {
	if err := b.ctx.Err(); err != nil {
		return "", nil, err
	}
	for _, r := range b.roots(p) {
		file := filepath.Join(r[0], filepath.FromSlash(r[1]))
		if !b.reached(r[0], filepath.Dir(file)) && file != r[0] {
			continue
		}
		fi, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, baseError(err)
		}
		if isWhiteout(fi) {
			break
		}
		return file, fi, nil
	}
	return "", nil, nil
}

// reached reports whether dir is root or below it, through nothing but real
// directories.
func (b *baseFiles) reached(root, dir string) bool {
	if dir == root {
		return true
	}
	kind, known := b.kinds[dir]
	if !known {
		kind = fs.ModeIrregular
		if fi, err := os.Lstat(dir); err == nil && b.reached(root, filepath.Dir(dir)) {
			kind = fi.Mode().Type()
		}
		b.kinds[dir] = kind
	}
	return kind == fs.ModeDir
}

// isWhiteout reports whether a file marks a deletion, as overlayfs does it.
func isWhiteout(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && fi.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// lookup returns what is at a path.
func (b *baseFiles) lookup(p string) (found, bool, error) {
	file, fi, err := b.locate(p)
	if err != nil || fi == nil {
		return found{}, false, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return found{}, false, baseError(errors.New("no owner"))
	}
	e := layer.Entry{Path: p, Type: layer.Other, Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid), ModTime: fi.ModTime()}
	switch {
	case fi.IsDir():
		e.Type = layer.Dir
	case fi.Mode().IsRegular():
		e.Type, e.Size = layer.File, fi.Size()
	case fi.Mode()&fs.ModeSymlink != 0:
		e.Type = layer.Link
		if e.Target, err = os.Readlink(file); err != nil {
			return found{}, false, baseError(err)
		}
	}
	return found{Entry: e, host: file}, true, nil
}

// children are the names in a directory.
func (b *baseFiles) children(dir string) ([]string, error) {
	names := map[string]bool{}
	for _, r := range b.roots(dir) {
		file := filepath.Join(r[0], filepath.FromSlash(r[1]))
		if file != r[0] && !b.reached(r[0], file) {
			continue
		}
		list, err := os.ReadDir(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, baseError(err)
		}
		for _, e := range list {
			names[e.Name()] = true
		}
	}
	for _, d := range b.rootfs.HostDirs { // a target need not be in the layers
		if path.Dir(d.Target) == dir {
			names[path.Base(d.Target)] = true
		}
	}
	return slices.Collect(maps.Keys(names)), nil
}

// open opens a file of the base.
func (b *baseFiles) open(host string) (*os.File, error) {
	f, err := os.OpenFile(host, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, baseError(err)
	}
	return f, nil
}

// digest is that of the content of a file of the base.
func (b *baseFiles) digest(host string) (string, error) {
	if err := b.ctx.Err(); err != nil {
		return "", err
	}
	f, err := b.open(host)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", baseError(err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func baseError(err error) error {
	return fault.Wrap(err, fault.Unavailable, "the files of the runtime cannot be read on this server").About("runtime")
}
