package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// removeOurs removes from a copy of a private layer what the launcher put into
// the layer: the file that keeps /tmp, and the directories in which the
// private layers of host directories begin, with those on the way to them.
// What the sandbox made of one of these stays.
func (b box) removeOurs(r *record, tree string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(keepFile); err == nil && (info.Size() == 0 || info.Mode()&fs.ModeCharDevice != 0) {
		if err := root.Remove(keepFile); err != nil {
			return err
		}
	}
	// Attributes as the launcher found them, by path.
	ours := map[string]string{filepath.Dir(keepFile): filepath.Join(b.seed(), filepath.Dir(keepFile))}
	for _, dir := range r.Spec.Rootfs.HostDirs {
		rel := strings.TrimPrefix(filepath.Clean(dir.Target), "/")
		for up := filepath.Dir(rel); up != "."; up = filepath.Dir(up) {
			if _, ok := ours[up]; !ok {
				ours[up] = filepath.Join(b.seed(), up)
			}
		}
		ours[rel] = dir.Source
	}
	paths := make([]string, 0, len(ours))
	for p := range ours {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range slices.Backward(paths) { // what lies within comes first
		same, err := sameEmptyDir(root, p, ours[p])
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		if err := root.Remove(p); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return nil
}

// sameEmptyDir reports whether p is a directory that hides nothing and is
// owned and protected like another one.
func sameEmptyDir(root *os.Root, p, like string) (bool, error) {
	f, err := root.OpenFile(p, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	var is, was unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return false, err
	}
	if err := unix.Stat(like, &was); err != nil {
		return false, nil // the host's directory is gone
	}
	if _, err := unix.Fgetxattr(int(f.Fd()), "trusted.overlay.opaque", nil); err == nil {
		return false, nil
	}
	return is.Mode == was.Mode && is.Uid == was.Uid && is.Gid == was.Gid, nil
}
