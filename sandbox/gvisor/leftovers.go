package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Leftovers implements driver.Cleaner. Mounts, namespaces and loop devices end
// with the processes that use them, so what can be left of a sandbox that is
// not there any more is processes, runsc's state, cgroups and directories of
// ours that are no sandbox's.
func (d *Driver) Leftovers(ctx context.Context, fix bool) ([]string, error) {
	found := make(map[string][]string) // by id
	note := func(id, format string, args ...any) {
		if _, err := os.Lstat(d.box(id).dir); errors.Is(err, fs.ErrNotExist) {
			found[id] = append(found[id], fmt.Sprintf(format, args...))
		}
	}
	processes, err := d.processes("")
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the processes of this host cannot be listed")
	}
	for id, list := range processes {
		for _, p := range list {
			note(id, "process %d of sandbox %s", p.pid, id)
			p.close()
		}
	}
	for _, path := range d.stateFiles() {
		note(stateID(path), "%s", path)
	}
	for _, tree := range d.host().trees {
		entries, _ := os.ReadDir(filepath.Join(tree, d.cgroup)) // missing: none
		for _, e := range entries {
			if e.IsDir() {
				note(e.Name(), "cgroup %s", filepath.Join(tree, d.cgroup, e.Name()))
			}
		}
	}
	lines := make([]string, 0)
	var errs []error
	for id, l := range found {
		lines = append(lines, l...)
		if fix {
			errs = append(errs, d.fix(ctx, id))
		}
	}
	for _, dir := range d.strays() {
		lines = append(lines, dir)
		if fix {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	slices.Sort(lines)
	if err := errors.Join(errs...); err != nil {
		return lines, fault.Wrap(err, fault.Internal, "some of what sandboxes left behind could not be removed")
	}
	return lines, nil
}

// fix removes what is left of a sandbox, unless it was created meanwhile.
func (d *Driver) fix(ctx context.Context, id string) error {
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Lstat(d.box(id).dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = d.bury(ctx, id, true)
	d.removeParentCgroup()
	return err
}

// strays lists directories of ours that a crash may have left.
func (d *Driver) strays() []string {
	var dirs []string
	for _, parent := range []string{d.dir, d.trashDir()} {
		entries, _ := os.ReadDir(parent) // missing: none
		for _, e := range entries {
			if parent == d.trashDir() || strings.HasPrefix(e.Name(), probePrefix) {
				dirs = append(dirs, filepath.Join(parent, e.Name()))
			}
		}
	}
	return dirs
}

// stateFiles lists what runsc keeps of sandboxes.
func (d *Driver) stateFiles() []string {
	entries, _ := os.ReadDir(d.runDir()) // missing: none
	var files []string
	for _, e := range entries {
		if stateID(e.Name()) != "" {
			files = append(files, filepath.Join(d.runDir(), e.Name()))
		}
	}
	return files
}

// stateID is the sandbox that a file of runsc is about, "" for any other file.
func stateID(path string) string {
	name := filepath.Base(path)
	if id, ok := strings.CutPrefix(name, "runsc-"); ok {
		return strings.TrimSuffix(id, ".sock")
	}
	id, _, _ := strings.Cut(name, "_sandbox:")
	if !driver.ValidID(id) || id == name {
		return ""
	}
	return id
}
