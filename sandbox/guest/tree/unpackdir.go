package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// asDir behind a path has the kernel look it up as a directory, and not open
// what is none: os.OpenRoot would wait at a pipe.
const asDir = "/."

// OpenRoot is os.OpenRoot for a path at which there may be anything.
func OpenRoot(path string) (*os.Root, error) { return os.OpenRoot(path + asDir) }

// enter makes a directory the present one, making it and those above it when
// they are missing.
func (u *unpacker) enter(dir string) error {
	if dir == "." {
		dir = ""
	}
	if dir == u.dirPath {
		return nil
	}
	u.leave(dir)
	if u.dirPath != "" && !below(dir, u.dirPath) {
		u.moveTo(u.root, "")
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(dir, u.dirPath), "/")
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" {
			continue
		}
		next, err := u.step(part)
		if err != nil {
			return err
		}
		u.moveTo(next, path.Join(u.dirPath, part))
	}
	return nil
}

// step opens a directory of the present one. A link in its place is followed
// as long as it stays below the root.
func (u *unpacker) step(part string) (*os.Root, error) {
	next, err := u.dir.OpenRoot(part + asDir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := u.dir.Lstat(part); lerr == nil {
			return nil, err // a link that leads nowhere
		}
		if err := u.dir.Mkdir(part, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		next, err = u.dir.OpenRoot(part + asDir)
	}
	if escapes(err) && u.dir != u.root {
		// It leads out of the directory it is in, maybe not out of the root.
		return u.root.OpenRoot(path.Join(u.dirPath, part) + asDir)
	}
	return next, err
}

func (u *unpacker) moveTo(dir *os.Root, path string) {
	if u.dir != u.root && u.dir != dir {
		u.dir.Close()
	}
	u.dir, u.dirPath = dir, path
}

// leave sets modes and times of the directories that the next one is not in.
// They are those of an archive that somebody made; what cannot be set, or is
// no directory any more, stays as it is.
func (u *unpacker) leave(next string) {
	for len(u.pending) > 0 {
		last := u.pending[len(u.pending)-1]
		if next == last.path || below(next, last.path) {
			return
		}
		u.pending = u.pending[:len(u.pending)-1]
		if info, err := u.root.Lstat(last.path); err != nil || !info.IsDir() {
			continue
		}
		if d, err := u.root.OpenFile(last.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0); err == nil {
			_ = d.Chmod(last.mode)
			d.Close()
		}
		_ = u.root.Chtimes(last.path, last.modified, last.modified)
	}
}

// below reports whether path lies below dir.
func below(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}
