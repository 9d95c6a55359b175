package layer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Directories is a Base of host directories in the overlay form, the topmost
// first, as sandboxes are made from. Close closes them.
type Directories struct{ roots []*os.Root }

// OpenDirectories opens directories as a Base.
func OpenDirectories(dirs ...string) (*Directories, error) {
	d := &Directories{}
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			d.Close()
			return nil, failure(err, "open the files below")
		}
		d.roots = append(d.roots, root)
	}
	return d, nil
}

// Close closes the directories.
func (d *Directories) Close() {
	for _, root := range d.roots {
		root.Close()
	}
}

// look finds what is at a path: the layers that have a say, all of them
// directories or the one that has a file. A layer has a say in what is in a
// directory only if it has that directory itself, so no link is followed.
func (d *Directories) look(p string) ([]*os.Root, fs.FileInfo, error) {
	active, at := d.roots, "."
	var info fs.FileInfo
	for _, name := range append([]string{"."}, strings.Split(rel(p), "/")...) {
		at = path.Join(at, name)
		var next []*os.Root
		info = nil
		for _, root := range active {
			i, err := root.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			st, ok := i.Sys().(*syscall.Stat_t)
			if ok && i.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 {
				break
			}
			if !i.IsDir() {
				if info == nil {
					info, next = i, []*os.Root{root}
				}
				break
			}
			if info == nil {
				info = i
			}
			next = append(next, root)
			if opaque, err := opaqueIn(root, at); err != nil {
				return nil, nil, err
			} else if opaque {
				break
			}
		}
		if info == nil {
			return nil, nil, nil
		}
		if active = next; !info.IsDir() && at != rel(p) {
			return nil, nil, nil
		}
	}
	return active, info, nil
}

func opaqueIn(root *os.Root, dir string) (bool, error) {
	f, err := root.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, name := range []string{trustedOpaque, userOpaque} {
		if v, err := fdXattr(int(f.Fd()), name); err == nil && string(v) == "y" {
			return true, nil
		}
	}
	return false, nil
}

// rel is a path as os.Root wants it.
func rel(p string) string { return path.Join(".", p) }

// Entry implements Base.
func (d *Directories) Entry(p string) (Entry, bool, error) {
	roots, info, err := d.look(p)
	if err != nil || info == nil {
		return Entry{}, false, failure(err, "read the files below")
	}
	st := info.Sys().(*syscall.Stat_t)
	e := Entry{Path: p, Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid), ModTime: info.ModTime()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Type = Dir
	case mode.IsRegular():
		e.Type, e.Size = File, info.Size()
	case mode&fs.ModeSymlink != 0:
		e.Type, e.Mode = Link, 0o777
		if e.Target, err = roots[0].Readlink(rel(p)); err != nil {
			return e, false, failure(err, "read the files below")
		}
	default:
		e.Type = Other
	}
	if e.Type == File || e.Type == Dir {
		f, err := roots[0].OpenFile(rel(p), unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return e, false, failure(err, "read the files below")
		}
		defer f.Close()
		err = fdXattrs(int(f.Fd()), func(name string, value []byte) error {
			e.keep(name, string(value))
			return nil
		})
		if err != nil {
			return e, false, failure(err, "read the files below")
		}
	}
	return e, true, nil
}

// Names implements Base.
func (d *Directories) Names(p string) ([]string, error) {
	roots, info, err := d.look(p)
	if err != nil || info == nil || !info.IsDir() {
		return nil, failure(err, "read the files below")
	}
	shown := make(map[string]bool) // false: deleted
	var all []string
	for _, root := range roots {
		f, err := root.Open(rel(p))
		if err != nil {
			return nil, failure(err, "read the files below")
		}
		infos, err := f.Readdir(-1)
		f.Close()
		if err != nil {
			return nil, failure(err, "read the files below")
		}
		for _, i := range infos {
			if _, known := shown[i.Name()]; known {
				continue
			}
			st, ok := i.Sys().(*syscall.Stat_t)
			deleted := ok && i.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
			if shown[i.Name()] = !deleted; !deleted {
				all = append(all, i.Name())
			}
		}
	}
	return all, nil
}

// Open implements Base.
func (d *Directories) Open(p string) (io.ReadCloser, error) {
	roots, info, err := d.look(p)
	if err == nil && (info == nil || !info.Mode().IsRegular()) {
		return nil, fault.New(fault.NotFound, "there is no file %.200q", p)
	}
	if err != nil {
		return nil, failure(err, "read the files below")
	}
	f, err := roots[0].OpenFile(rel(p), unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, failure(err, "read the files below")
	}
	return f, nil
}
