package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrMount means that a directory is a mount point: what is mounted there is
// somebody else's.
var ErrMount = errors.New("is a mount point")

// Remove removes a directory with all that is in it. Links are removed and not
// followed, mounts are not entered. Where it fails, which the error's path
// says, it stops: what it removed before is gone.
func Remove(ctx context.Context, path string) error {
	dir, err := OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	parent, name := int(dir.Fd()), filepath.Base(path)
	fail := func(d *descent, last string, err error) error {
		full := path
		if len(d.path) > 0 {
			full += "/" + string(d.path)
		}
		if last != "" {
			full += "/" + last
		}
		return &os.PathError{Op: "remove", Path: full, Err: err}
	}
	d, err := enter(parent, name)
	if err != nil {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	defer d.close()
	for ctx.Err() == nil {
		entry, kind, err := d.next()
		if err != nil {
			return fail(d, "", err)
		}
		if entry != "" {
			if err := d.removeEntry(entry, kind); err != nil {
				return fail(d, entry, err)
			}
			continue
		}
		// All of it was handed out. Some filesystems leave entries out while
		// others are removed, hence once more as long as that helps.
		if d.top().removed {
			if err := d.rewind(); err != nil {
				return fail(d, "", err)
			}
			continue
		}
		if len(d.levels) == 1 {
			if err := unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil {
				return fail(d, "", err)
			}
			return nil
		}
		child, err := d.up()
		if err != nil {
			return fail(d, "", err)
		}
		if err := unlinkat(d.top().fd, child, unix.AT_REMOVEDIR); err != nil {
			return fail(d, child, err)
		}
		d.top().removed = true
	}
	return ctx.Err()
}

// enter opens the directory that is to be removed, which must not be a mount.
func enter(parent int, name string) (*descent, error) {
	above, err := unix.FcntlInt(uintptr(parent), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d, err := begin(above)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.down(name, refuseMount); err != nil {
		return nil, err
	}
	l := *d.top()
	d.levels = d.levels[:1] // the other one is taken over
	return &descent{levels: []level{{fd: l.fd, dev: l.dev, ino: l.ino}}}, nil
}

func refuseMount(_ int, crossed bool) error {
	if crossed {
		return ErrMount
	}
	return nil
}

// removeEntry removes an entry of the innermost directory, or enters it.
func (d *descent) removeEntry(name string, kind byte) error {
	if kind != unix.DT_DIR {
		err := unlinkat(d.top().fd, name, 0)
		if err == nil {
			d.top().removed = true
			return nil
		}
		// The type that a directory tells may be none, or old.
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	// What lies deep is moved up and removed from there: a kernel may hold what
	// it has seen of a tree open, as gVisor does, and that is bounded too.
	if len(d.levels) > maxRemoveDepth && d.lift(name) == nil {
		return nil
	}
	err := d.down(name, refuseMount)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return unlinkat(d.top().fd, name, 0)
	case errors.Is(err, unix.ENOENT):
		return nil
	}
	return err
}

// maxRemoveDepth is how deep a removal goes where it can avoid more.
const maxRemoveDepth = 256

// lift moves a directory of the innermost one up to the root of the descent.
func (d *descent) lift(name string) error {
	root := &d.levels[0]
	err := unix.Renameat(d.top().fd, name, root.fd, ".sandgate-"+rand.Text())
	if err == nil {
		root.removed, d.top().removed = true, true
	}
	return err
}

// unlinkat removes an entry; that it is gone already is as good.
func unlinkat(dir int, name string, flags int) error {
	_, err := retry(func() (struct{}, error) { return struct{}{}, unix.Unlinkat(dir, name, flags) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
