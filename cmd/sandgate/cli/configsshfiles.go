package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxConfig bounds a file that is read whole.
const maxConfig = 4 << 20

// change is one file before and after.
type change struct {
	path          string
	before, after []byte // after is nil where there is to be no file
	absent        bool   // there is no file now
	mode          fs.FileMode
}

// readConfig reads a file as a change that changes nothing.
func readConfig(path string) (change, error) {
	c := change{path: path, mode: 0o600}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		c.absent = true
		return c, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxConfig) {
		return c, fault.New(fault.Invalid, "%s is not a file that can be edited", path)
	}
	if err == nil {
		c.before, err = os.ReadFile(path)
	}
	if err != nil {
		return c, fault.Wrap(err, fault.Unavailable, "%s cannot be read: %v", path, err)
	}
	if c.before == nil {
		c.before = []byte{}
	}
	c.after, c.mode = c.before, info.Mode().Perm()
	return c, nil
}

// action names the change.
func (c change) action() string {
	switch {
	case c.after == nil:
		return "remove"
	case c.absent:
		return "create"
	}
	return "update"
}

func dropUnchanged(changes []change) []change {
	return slices.DeleteFunc(changes, func(c change) bool {
		return c.absent == (c.after == nil) && bytes.Equal(c.before, c.after)
	})
}

// apply brings the change about. Whoever reads the file meanwhile sees all of
// the old or all of the new one. A symbolic link stays one: what it leads to is
// replaced, with its mode and its owner.
func (c change) apply() error {
	if c.after == nil {
		return os.Remove(c.path)
	}
	path, err := filepath.EvalSymlinks(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = c.path, nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".sandgate-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(c.after)
	if err == nil {
		err = keepOwner(tmp, path)
	}
	if err == nil {
		err = tmp.Chmod(c.mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// keepOwner gives f the owner of the file whose place it takes: root may edit
// somebody else's.
func keepOwner(f *os.File, path string) error {
	old, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	own, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := old.Sys().(*syscall.Stat_t)
	have, ok2 := own.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || want.Uid == have.Uid && want.Gid == have.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
