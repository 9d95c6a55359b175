package gvisor

import (
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

func TestConformance(t *testing.T) {
	d, err := New(Config{StateDir: t.TempDir(), Executable: gvisortest.Executable(t)})
	must(t, err)
	needSandboxes(t, d)
	must(t, d.Close())
	h := drivertest.Harness{
		New: func(t testing.TB, state string) driver.Driver {
			d, err := New(Config{StateDir: filepath.Join(state, "gvisor"), Executable: gvisortest.Executable(t), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Rootfs: drivertest.BusyboxRootfs(t),
		Guest:  driver.Guest{Path: drivertest.BuildGuest(t)},
		Expect: expected(d),
		Leaks:  leaks,
		Damage: func(t testing.TB, state, id string) {
			t.Helper()
			must(t, os.Remove(filepath.Join(state, "gvisor/box", id, "record.json")))
		},
		DamageMemory: func(t testing.TB, state, id string) {
			t.Helper()
			f, err := os.OpenFile(filepath.Join(state, "gvisor/box", id, "image", imageFiles[2]), os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte("damage"), 4096)
			must(t, err)
		},
	}
	drivertest.Run(t, h)
}

// expected are the features that no probe may miss: those that any host has
// where sandboxes run, and as root those of the machines that we test on.
func expected(d *Driver) []string {
	if d.root {
		return []string{driver.FeatureProcessLimit, driver.FeatureHostDirs, driver.FeatureDurableFiles, driver.FeatureMemoryLimit, driver.FeatureCPULimit,
			driver.FeatureCheckpoint, driver.FeatureSave, driver.FeatureResize}
	}
	return []string{driver.FeatureProcessLimit, driver.FeatureHostDirs, driver.FeatureDiskLimit, driver.FeatureCheckpoint, driver.FeatureSave}
}

// leaks looks for what is left of a sandbox wherever something could be,
// without the driver's help.
func leaks(t testing.TB, state, id string) []string {
	t.Helper()
	if !driver.ValidID(id) {
		return nil // a part of every other name
	}
	var found []string
	for _, root := range []string{state, "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && strings.Contains(e.Name(), id) {
				found = append(found, path)
			}
			return nil // what vanishes meanwhile is no leak
		})
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, name := range append(lines, "/proc/self/mountinfo") {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if strings.Contains(string(text), "/"+id+"/") {
			found = append(found, name+": "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	if out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output(); err == nil && strings.Contains(string(out), id) {
		found = append(found, "loop device: "+string(out))
	}
	return found
}
