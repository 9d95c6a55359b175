package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// cpuPeriod is the kernel's default, in microseconds.
	cpuPeriod = 100_000
)

// hierarchy knows the control groups of this host: one tree in version 2, one
// for each controller in version 1, or none.
type hierarchy struct {
	v2 bool
	// trees are the mount points of the trees that our groups are in. Besides
	// the controllers that are the ones by which systemd tells services apart:
	// a sandbox must not end with the service that started it.
	trees []string
}

func findHierarchy() hierarchy {
	var st unix.Statfs_t
	if unix.Statfs(cgroupRoot, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return hierarchy{v2: true, trees: []string{cgroupRoot}}
	}
	var h hierarchy
	seen := make(map[string]bool)
	for _, name := range []string{"memory", "cpu", "cpuacct", "pids", "systemd", "unified"} {
		// Controllers that are mounted together have links to one directory.
		dir, err := filepath.EvalSymlinks(filepath.Join(cgroupRoot, name))
		if err != nil || seen[dir] || unix.Statfs(dir, &st) != nil {
			continue
		}
		if st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC {
			seen[dir] = true
			h.trees = append(h.trees, dir)
		}
	}
	return h
}

// file returns the path of a group's control file; the controller matters in
// version 1 alone.
func (h hierarchy) file(controller, group, name string) string {
	if h.v2 {
		controller = ""
	}
	return filepath.Join(cgroupRoot, controller, group, name)
}

// make makes a group with the limits, and its parent.
func (h hierarchy) make(parent, group string, l driver.Limits) error {
	if h.v2 {
		if err := h.delegate(parent); err != nil {
			return err
		}
	}
	for _, tree := range h.trees {
		if err := mkdirAll(filepath.Join(tree, group)); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	for _, s := range h.settings(l) {
		path := h.file(s.controller, group, s.name)
		if _, err := os.Stat(path); err != nil && s.optional {
			continue
		}
		if err := os.WriteFile(path, []byte(s.value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", s.name, s.value, err)
		}
	}
	return nil
}

// mkdirAll is os.MkdirAll, for a parent that somebody may remove at any moment
// because it is empty.
func mkdirAll(dir string) error {
	for try := 0; ; try++ {
		err := os.MkdirAll(dir, 0o755)
		if !errors.Is(err, fs.ErrNotExist) || try == 100 {
			return err
		}
	}
}

// delegate lets the children of the root and of parent have controllers. One
// that is not to be had shows when its control files are missing.
func (h hierarchy) delegate(parent string) error {
	for _, dir := range []string{"", parent} {
		if err := os.MkdirAll(filepath.Join(cgroupRoot, dir), 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		for _, controller := range []string{"+memory", "+cpu", "+pids"} {
			_ = os.WriteFile(h.file("", dir, "cgroup.subtree_control"), []byte(controller), 0)
		}
	}
	return nil
}

// setting is a value of a control file. Optional ones are there or not,
// depending on how the kernel was built and booted.
type setting struct {
	controller, name, value string
	optional                bool
}

// settings are the limits, which hold for everything of a sandbox: the sentry,
// the gofer and the processes inside.
func (h hierarchy) settings(l driver.Limits) []setting {
	var s []setting
	if n := l.MemoryBytes; n > 0 {
		limit := strconv.FormatInt(n, 10)
		if h.v2 {
			s = append(s, setting{"memory", "memory.max", limit, false},
				setting{"memory", "memory.swap.max", "0", true},
				setting{"memory", "memory.oom.group", "1", true})
		} else {
			s = append(s, setting{"memory", "memory.limit_in_bytes", limit, false},
				// Memory and swap together.
				setting{"memory", "memory.memsw.limit_in_bytes", limit, true})
		}
	}
	if n := l.CPUMillis; n > 0 {
		quota := max(n*cpuPeriod/1000, 1000) // the kernel takes no less
		if h.v2 {
			s = append(s, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false})
		} else {
			s = append(s, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
				setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10), false})
		}
	}
	if n := l.Processes; n > 0 {
		// The limit itself is a resource limit inside. The host needs two to
		// three tasks for each one inside, and a sentry that is refused one
		// dies; so this is only what a broken sentry cannot exceed.
		s = append(s, setting{"pids", "pids.max", strconv.FormatInt(4*n+512, 10), true})
	}
	return s
}

// join moves a process into a group.
func (h hierarchy) join(group string, pid int) error {
	for _, tree := range h.trees {
		if err := os.WriteFile(filepath.Join(tree, group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// read returns one number from a control file: all of it, or the value of the
// line that begins with key.
func (h hierarchy) read(controller, group, name, key string) (int64, error) {
	b, err := os.ReadFile(h.file(controller, group, name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch {
		case key == "" && len(fields) == 1:
			return strconv.ParseInt(fields[0], 10, 64)
		case len(fields) == 2 && fields[0] == key:
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %q in %s", key, name)
}

// oomKills counts the processes of a group that the kernel killed because of
// the memory limit; 0 when the group is gone.
func (h hierarchy) oomKills(group string) int64 {
	name := "memory.oom_control"
	if h.v2 {
		name = "memory.events"
	}
	n, _ := h.read("memory", group, name, "oom_kill")
	return n
}

// forksRefused counts how often a group ran into its limit of tasks.
func (h hierarchy) forksRefused(group string) int64 {
	n, _ := h.read("pids", group, "pids.events", "max")
	return n
}

// remove removes a group, which has no process left. The kernel takes a moment
// to see that.
func (h hierarchy) remove(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, tree := range h.trees {
		if err := removeCgroup(ctx, filepath.Join(tree, group)); err != nil {
			return err
		}
	}
	return nil
}

func removeCgroup(ctx context.Context, dir string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		case <-tick.C:
		}
	}
}

// cgroupOf is the group of a sandbox.
func (d *Driver) cgroupOf(id string) string { return d.cgroup + "/" + id }

// removeParentCgroup removes the group that holds those of our sandboxes, if
// none is left. It is made again when needed.
func (d *Driver) removeParentCgroup() {
	for _, tree := range d.host().trees {
		_ = unix.Rmdir(filepath.Join(tree, d.cgroup)) // fails while in use
	}
}
