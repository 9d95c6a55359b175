package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// place is a directory or small file that every root filesystem has.
type place struct {
	path    string
	mode    fs.FileMode
	content string // for files
	file    bool
}

// places are what drivers mount over or the guest relies on. /tmp holds a file
// because gVisor puts a private memory filesystem over an empty one, which
// would keep files out of snapshots.
var places = []place{
	{path: "dev", mode: 0o755},
	{path: "etc", mode: 0o755},
	{path: "proc", mode: 0o755},
	{path: "run", mode: 0o755},
	{path: "sys", mode: 0o755},
	{path: "tmp", mode: 0o777 | fs.ModeSticky},
	{path: "tmp/.keep", mode: 0o644, file: true},
	{path: "workspace", mode: 0o755},
	{path: ".sandgate", mode: 0o755},
	// The names of the machine a tree was made on stay there; the driver
	// writes those of the sandbox.
	{path: "etc/hostname", mode: 0o644, file: true},
	{path: "etc/hosts", mode: 0o644, file: true, content: "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"},
	{path: "etc/resolv.conf", mode: 0o644, file: true},
	{path: "etc/machine-id", mode: 0o644, file: true},
}

// finishRoot makes the places every root filesystem has. What else is there
// under their names, a link that leads elsewhere for example, is replaced.
func finishRoot(root string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, p := range places {
		if err := p.make(r); err != nil {
			return fmt.Errorf("make /%s: %w", p.path, err)
		}
	}
	return nil
}

func (p place) make(r *os.Root) error {
	fi, err := r.Lstat(p.path)
	if err == nil && (p.file || !fi.IsDir()) {
		if err := r.RemoveAll(p.path); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.file:
		err = r.WriteFile(p.path, []byte(p.content), 0o600)
	case errors.Is(err, fs.ErrNotExist):
		err = r.Mkdir(p.path, 0o700)
	}
	if err != nil {
		return err
	}
	return r.Chmod(p.path, p.mode)
}

// checkShell makes sure that a tree is a root filesystem at all.
func checkShell(root string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	x := &extractor{root: r, dirs: make(map[string]string)}
	bin, err := x.resolve("bin", false)
	if err != nil {
		return err
	}
	_, err = r.Lstat(path.Join(bin, "sh"))
	return err
}
