package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
	"github.com/sandgate/sandgate/sandbox/modeltest"
)

// TestModel holds the engine on this driver to a model of its promises.
func TestModel(t *testing.T) {
	steps := 300
	if testing.Short() || os.Geteuid() != 0 {
		steps = 100
	}
	state := t.TempDir()
	open := func(t *testing.T) driver.Driver {
		d, err := New(Config{StateDir: state, Executable: gvisortest.Executable(t)})
		must(t, err)
		return d
	}
	first := open(t).(*Driver)
	needSandboxes(t, first)
	must(t, first.Close())
	modeltest.Run(t, modeltest.Harness{
		Driver: open,
		Rootfs: drivertest.BusyboxRootfs(t),
		Guest:  driver.Guest{Path: drivertest.BuildGuest(t)},
		Steps:  steps,
		Kill: func(id string) {
			for _, pid := range sentries(id) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		},
		Freeze: func(t *testing.T, id string) func() {
			pids := sentries(id)
			for _, pid := range pids {
				must(t, syscall.Kill(pid, syscall.SIGSTOP))
			}
			return func() {
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGCONT)
				}
			}
		},
		Leaks: func(live map[string]bool) []string { return strays(state, first.cgroup, live) },
	})
}

// sentries are the processes that are the kernel of a sandbox.
func sentries(id string) []int {
	var pids []int
	each(func(pid int, args []string) {
		if args[0] == "runsc-sandbox" && args[len(args)-1] == id {
			pids = append(pids, pid)
		}
	})
	return pids
}

// each calls f for every process of this machine.
func each(f func(pid int, args []string)) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range found {
		text, err := os.ReadFile(name)
		var pid int
		if _, serr := fmt.Sscanf(name, "/proc/%d/", &pid); err != nil || serr != nil || len(text) == 0 {
			continue
		}
		f(pid, strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00"))
	}
}

// strays looks for what is left on the host of sandboxes that are not live.
func strays(state, cgroup string, live map[string]bool) []string {
	var found []string
	stray := func(what, name string) {
		if i := strings.Index(name, "sbx_"); i >= 0 && len(name) >= i+16 && !live[name[i:i+16]] {
			found = append(found, what+" "+name)
		}
	}
	each(func(pid int, args []string) {
		if line := strings.Join(args, " "); strings.HasPrefix(args[0], "runsc") && strings.Contains(line, state) {
			stray(fmt.Sprint("process ", pid), line[strings.Index(line, state):])
		}
	})
	for _, pattern := range []string{state + "/*/*", "/sys/fs/cgroup/*/" + cgroup + "/*", "/sys/fs/cgroup/" + cgroup + "/*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			stray("file", filepath.Base(name))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, state) {
				stray("mount", line)
			}
		}
	}
	return found
}
