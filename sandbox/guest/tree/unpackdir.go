package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// How an archive's directories are found: one component at a time, from a
// directory that is held open, never through a link that was not read first.
// os.Root works so too, but not inside of gVisor; see openDirAt.

// enter makes a directory the present one, making it and those above it when
// they are missing.
func (u *unpacker) enter(dir string) error {
	if dir == "." {
		dir = ""
	}
	if dir == u.asked {
		return nil
	}
	u.leave(dir)
	if u.asked != "" && !below(dir, u.asked) {
		u.moveTo(u.root, "")
	}
	u.links = 0
	rest := strings.TrimPrefix(strings.TrimPrefix(dir, u.asked), "/")
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" {
			continue
		}
		fd, real, err := u.step(u.dir, u.real, part, true)
		if err != nil {
			return err
		}
		u.moveTo(fd, real)
		u.asked = path.Join(u.asked, part)
	}
	return nil
}

// moveTo makes an open directory the present one.
func (u *unpacker) moveTo(fd int, real string) {
	if u.dir != u.root && u.dir != fd {
		unix.Close(u.dir)
	}
	u.dir, u.real = fd, real
	if fd == u.root {
		u.asked = ""
	}
}

// maxLinks is how many links may lead to one directory; the kernel allows 40.
const maxLinks = 40

// step opens an entry of a directory as a directory; make makes it when it is
// missing. A link is followed as long as it stays below the root. real is the
// path of the directory without links.
func (u *unpacker) step(dir int, real, part string, make bool) (int, string, error) {
	fd, _, err := openDirAt(dir, part)
	if make && errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mkdirat(dir, part, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return -1, "", err
		}
		fd, _, err = openDirAt(dir, part)
	}
	if !errors.Is(err, unix.ELOOP) {
		return fd, path.Join(real, part), err
	}
	if u.links++; u.links > maxLinks {
		return -1, "", unix.ELOOP
	}
	return u.follow(real, part, dir)
}

// follow opens what a link in a directory leads to.
func (u *unpacker) follow(real, part string, dir int) (int, string, error) {
	target, err := (&Node{dir: dir, Name: part}).Target()
	if err != nil {
		return -1, "", err
	}
	if path.IsAbs(target) {
		return -1, "", errEscapes
	}
	// Each part in turn, because the links among them decide where ".." is.
	at := real
	fd, err := u.dup(real)
	if err != nil {
		return -1, "", err
	}
	for name := range strings.SplitSeq(target, "/") {
		next, nextReal := -1, ""
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				unix.Close(fd)
				return -1, "", errEscapes
			}
			nextReal = parent(at)
			next, err = u.dup(nextReal)
		default:
			if len(name) > wire.MaxName {
				err = unix.ENAMETOOLONG
			} else {
				next, nextReal, err = u.step(fd, at, name, false)
			}
		}
		unix.Close(fd)
		if err != nil {
			return -1, "", err
		}
		fd, at = next, nextReal
	}
	return fd, at, nil
}

// dup opens a directory by its path without links, from the root.
func (u *unpacker) dup(real string) (int, error) {
	fd, err := openat(u.root, ".", unix.O_RDONLY)
	for part := range strings.SplitSeq(real, "/") {
		if err != nil {
			return -1, err
		}
		if part == "" {
			continue
		}
		var next int
		next, _, err = openDirAt(fd, part)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}

// find opens a directory by the path that the archive gives.
func (u *unpacker) find(asked string) (int, string, error) {
	u.links = 0
	fd, err := u.dup("")
	at := ""
	for part := range strings.SplitSeq(asked, "/") {
		if err != nil {
			return -1, "", err
		}
		if part == "" || part == "." {
			continue
		}
		var next int
		next, at, err = u.step(fd, at, part, false)
		unix.Close(fd)
		fd = next
	}
	return fd, at, err
}

// leave sets modes and times of the directories that the next one is not in.
// They are those of an archive that somebody made; what cannot be set, or is
// not there any more, stays as it is.
func (u *unpacker) leave(next string) {
	for len(u.pending) > 0 {
		last := u.pending[len(u.pending)-1]
		if next == last.asked || below(next, last.asked) {
			return
		}
		u.pending = u.pending[:len(u.pending)-1]
		fd, err := u.dup(last.real)
		if err != nil {
			continue
		}
		if ts, err := unix.TimeToTimespec(last.modified); err == nil {
			_ = unix.UtimesNanoAt(fd, ".", []unix.Timespec{ts, ts}, 0)
		}
		d := os.NewFile(uintptr(fd), last.real)
		_ = d.Chmod(last.mode) // the times first: after this it may be closed
		d.Close()
	}
}

// parent is the path of the directory above; "" is the root.
func parent(real string) string {
	if i := strings.LastIndexByte(real, '/'); i >= 0 {
		return real[:i]
	}
	return ""
}

// below reports whether path lies below dir.
func below(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}
