package sftpserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// extensions are what the server behind and this one have beyond the draft.
var extensions = [...][2]string{
	{"posix-rename@openssh.com", "1"},
	{"statvfs@openssh.com", "2"},
	{"hardlink@openssh.com", "1"},
	{"expand-path@openssh.com", "1"},
	{"limits@openssh.com", "1"},
	{"home-directory", "1"},
}

// answer answers a request. It returns nothing for one that is to be handed on.
func (r *requests) answer(kind byte, p packet) ([]byte, error) {
	if kind == typeInit {
		b := newPacket(typeVersion).uint32(3)
		for _, e := range extensions {
			b = b.text(e[0]).text(e[1])
		}
		return b.done(), nil
	}
	id := p.uint32()
	var reply []byte
	switch kind {
	case typeMkdir:
		path := p.text()
		if mode := p.mode(0o777); !p.bad {
			reply = status(id, syscall.Mkdir(path, mode))
		}
	case typeRename:
		from, to := p.text(), p.text()
		if !p.bad {
			reply = status(id, rename(from, to))
		}
	case typeRealpath:
		if path := p.text(); !p.bad {
			reply = realName(id, path)
		}
	case typeExtended:
		switch p.text() {
		case "limits@openssh.com":
			reply = newPacket(typeExtendedReply).uint32(id).
				uint64(maxPacket).uint64(maxData).uint64(maxData).uint64(0).done()
		case "expand-path@openssh.com":
			if path := p.text(); !p.bad {
				reply = r.expand(id, path)
			}
		case "home-directory":
			if user := p.text(); !p.bad {
				reply = r.expand(id, "~"+user)
			}
		default:
			if !p.bad {
				return nil, nil
			}
		}
	}
	if p.bad {
		return nil, errMalformed
	}
	return reply, nil
}

// rename moves a file to where nothing is.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// This filesystem cannot do it in one step.
	if _, err := os.Lstat(to); err == nil {
		return syscall.EEXIST
	}
	return os.Rename(from, to)
}

// expand resolves a path that may begin with a home directory.
func (r *requests) expand(id uint32, path string) []byte {
	if after, ok := strings.CutPrefix(path, "~"); ok {
		user, rest, _ := strings.Cut(after, "/")
		home, ok := r.home(user)
		if !ok {
			return status(id, syscall.ENOENT)
		}
		path = filepath.Join(home, rest)
	}
	return realName(id, path)
}

// realName answers with the path that leads to the same without links. The last
// parts may be missing: it is often asked for what is about to be made.
func realName(id uint32, path string) []byte {
	dir, err := os.Getwd()
	if err != nil {
		return status(id, err)
	}
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	// ".." is what it is to the kernel, as long as there is something.
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return name(id, resolved)
	}
	path = filepath.Clean(path)
	missing := ""
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return name(id, filepath.Join(resolved, missing))
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return name(id, filepath.Join(path, missing))
		}
		missing = filepath.Join(filepath.Base(path), missing)
		path = filepath.Dir(path)
	}
}
