package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// folder is where the database is, for messages.
func (s *Store) folder() string { return filepath.Dir(s.path) }

func (s *Store) prepareFolder() error {
	dir := s.folder()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return s.unusableFolder(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return s.unusableFolder(err)
	}
	if !info.IsDir() {
		return fault.New(fault.Invalid, "%s is not a folder: name another state folder", dir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Unavailable,
			"others can write to the state folder %s: run chmod 700 %s, or name a folder of its own", dir, dir)
	}
	if info.Mode().Perm()&0o055 != 0 {
		s.log.Warn("others can look into the state folder; chmod 700 it", "dir", dir, "mode", info.Mode().Perm().String())
	}
	return nil
}

// prepareFile makes an empty database file before SQLite does, so that it is
// private from the first moment; SQLite gives its other files the same mode.
// An existing file is never opened here: closing it again would drop the locks
// that another Store of this process may hold on it.
func (s *Store) prepareFile() error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return s.unusableFolder(err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return s.unusableFolder(err)
	}
	if !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%s is not a file: name another state folder", s.path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(s.path, 0o600); err != nil {
			return s.unusableFolder(err)
		}
	}
	return nil
}

// unusableFolder explains why the folder or the file in it cannot be used.
func (s *Store) unusableFolder(err error) error {
	dir := s.folder()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(err, fault.Unavailable,
			"this user may not use the state folder %s: run as its owner, or name another folder", dir)
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.Unavailable,
			"the state folder %s cannot be made, for %s does not exist: make that first", dir, filepath.Dir(dir))
	case isDiskFull(err):
		return s.diskFull(err)
	}
	return fault.Wrap(err, fault.Unavailable, "the state folder %s cannot be used (%v): name another one", dir, err)
}
