package image

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks bounds how many symbolic links one name may lead through.
const maxLinks = 40

// resolve returns the real path of the directory that dir leads to inside the
// tree, following symbolic links as a process chrooted into it would. With
// create, what is missing is made, as archives need not list every parent.
//
// The answer cannot go stale between here and its use: nobody else writes to
// the tree, and replacing a directory or link forgets what was resolved.
func (x *extractor) resolve(dir string, create bool) (string, error) {
	if real, ok := x.dirs[dir]; ok {
		return real, nil
	}
	real := "."
	links := 0
	rest := strings.Split(dir, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..": // of a link's target; above the root is the root
			real = path.Dir(real)
			continue
		}
		next := path.Join(real, part)
		if strings.Count(next, "/") > maxDepth {
			return "", hostile("more than %d nested directories", maxDepth)
		}
		fi, err := x.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && create:
			if err := x.root.Mkdir(next, 0o755); err != nil {
				return "", err
			}
			if err := x.root.Chmod(next, 0o755); err != nil {
				return "", err
			}
			x.made[next] = struct{}{}
			real = next
		case err != nil:
			return "", err
		case fi.IsDir():
			real = next
		case fi.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", hostile("too many symbolic links")
			}
			target, err := x.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if path.IsAbs(target) {
				real = "."
			}
			rest = append(strings.Split(target, "/"), rest...)
			if len(rest) > maxPath {
				return "", hostile("too many symbolic links")
			}
		default:
			return "", hostile("an entry below %.200q, which is a file", next)
		}
	}
	x.dirs[dir] = real
	return real, nil
}

// enter opens a resolved directory and keeps it open, as archives list the
// files of a directory one after the other.
func (x *extractor) enter(real string) (*os.Root, error) {
	if x.open != nil && x.openDir == real {
		return x.open, nil
	}
	x.closeDir()
	d, err := x.root.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	x.open, x.openDir = d, real
	return d, nil
}

func (x *extractor) closeDir() {
	if x.open != nil {
		x.open.Close()
	}
	x.open, x.openDir = nil, ""
}

// whiteout applies a marker of an OCI layer: it hides what lower layers have,
// never what its own layer made.
func (x *extractor) whiteout(parent, base string) error {
	dir, err := x.enter(parent)
	if err != nil {
		return err
	}
	if base == opaqueMarker {
		return x.purge(dir, parent)
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if strings.HasPrefix(name, whiteoutPrefix) {
		return nil // bookkeeping of other tools
	}
	if name == "" || name == "." || name == ".." {
		return hostile("a whiteout of %q", name)
	}
	full := path.Join(parent, name)
	if _, ours := x.made[full]; ours {
		return nil
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return x.remove(dir, full, name, fi)
}

// purge removes from a directory all that the present layer did not make.
func (x *extractor) purge(dir *os.Root, full string) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		child := path.Join(full, e.Name())
		_, ours := x.made[child]
		switch {
		case e.IsDir() && (ours || x.madeBelow(child)):
			sub, err := dir.OpenRoot(e.Name())
			if err != nil {
				return err
			}
			err = x.purge(sub, child)
			sub.Close()
			if err != nil {
				return err
			}
		case !ours:
			fi, err := dir.Lstat(e.Name())
			if err != nil {
				return err
			}
			if err := x.remove(dir, child, e.Name(), fi); err != nil {
				return err
			}
		}
	}
	return nil
}

// madeBelow reports whether the present layer made anything inside a directory
// that it did not list itself.
func (x *extractor) madeBelow(dir string) bool {
	for made := range x.made {
		if strings.HasPrefix(made, dir+"/") {
			return true
		}
	}
	return false
}
