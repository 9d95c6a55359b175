package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// write makes the skeleton in root.
func (p *skeletonPlan) write(root string, unprivileged bool) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, d := range skeletonDirs {
		if err := makeDir(r, d.path, d.mode); err != nil {
			return err
		}
		if d.uid != 0 && !unprivileged {
			if err := r.Lchown(d.path, d.uid, d.uid); err != nil {
				return err
			}
		}
	}
	for _, name := range p.dirs {
		if err := makeDir(r, name, 0o755); err != nil {
			return err
		}
	}
	for _, links := range []map[string]string{p.links, skeletonLinks} {
		for name, target := range links {
			if err := r.Symlink(target, name); err != nil {
				return err
			}
		}
	}
	if err := p.copyAll(r); err != nil {
		return err
	}
	for _, f := range skeletonFiles {
		name := path.Join("etc", f.name)
		if path.IsAbs(f.name) {
			name = f.name[1:]
		}
		if err := r.RemoveAll(name); err != nil {
			return err
		}
		if err := r.WriteFile(name, []byte(f.content), 0o600); err != nil {
			return err
		}
		if err := r.Chmod(name, f.mode); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(r *os.Root, name string, mode fs.FileMode) error {
	if err := r.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return r.Chmod(name, mode)
}

var privateKey = []byte("PRIVATE KEY-----")

// copyAll takes the settings over. They come directory by directory, so each
// directory is opened once.
func (p *skeletonPlan) copyAll(r *os.Root) error {
	var dir *os.Root
	in := ""
	defer func() {
		if dir != nil {
			dir.Close()
		}
	}()
	for _, s := range p.settings {
		name := filepath.Join("etc", s.path)
		if parent := filepath.Dir(name); dir == nil || parent != in {
			if dir != nil {
				dir.Close()
			}
			if err := openParents(r, parent); err != nil {
				return err
			}
			var err error
			if dir, err = r.OpenRoot(parent); err != nil {
				return err
			}
			in = parent
		}
		if err := p.copy(dir, filepath.Base(name), s); err != nil {
			return fmt.Errorf("copy /etc/%s: %w", s.path, err)
		}
	}
	return nil
}

// openParents makes a directory and those above it, for everyone to read
// whatever the umask is.
func openParents(r *os.Root, dir string) error {
	if err := r.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for ; dir != "."; dir = filepath.Dir(dir) {
		if err := r.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// copy takes one setting over. What cannot be read or has become something
// else since it was looked at is left out.
func (p *skeletonPlan) copy(dir *os.Root, name string, s setting) error {
	switch {
	case s.info.IsDir():
		return makeDir(dir, name, 0o755)
	case s.info.Mode()&fs.ModeSymlink != 0:
		err := dir.Symlink(s.target, name)
		if errors.Is(err, fs.ErrExist) { // named by two patterns
			return nil
		}
		return err
	}
	f, err := os.OpenFile(filepath.Join(p.etc, s.path), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(now, s.info) || now.Mode() != s.info.Mode() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSettingBytes))
	if err != nil || bytes.Contains(data, privateKey) {
		return nil
	}
	if err := dir.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if s.info.Mode().Perm()&0o001 != 0 {
		mode = 0o755
	}
	return dir.Chmod(name, mode)
}
