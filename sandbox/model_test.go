package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/modeltest"
)

// TestModel holds the engine to a model of its promises, over thousands of
// random operations and hundreds of deaths of the server.
func TestModel(t *testing.T) {
	steps := 2500
	if testing.Short() {
		steps = 200
	}
	for world := range 4 {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			t.Parallel()
			host := fake.NewHost()
			t.Cleanup(func() {
				if err := host.Close(); err != nil {
					t.Error(err)
				}
			})
			var unsupported map[string]string
			if world == 3 { // as Docker is
				unsupported = map[string]string{driver.FeatureCheckpoint: "not in this world"}
			}
			dir, full := smallDisk(t)
			modeltest.Run(t, modeltest.Harness{
				Driver: func(*testing.T) driver.Driver { return fake.New(fake.Config{Host: host, Unsupported: unsupported}) },
				Rootfs: driver.Rootfs{Layers: []string{t.TempDir()}},
				Guest:  driver.Guest{Path: guestProgram(t)},
				Steps:  steps,
				Kill:   host.Kill,
				Dir:    dir,
				Full:   full,
			})
		})
	}
}

// smallDisk is a disk of its own for the state of a server, and what fills it.
// It takes root to make one; without, the disk never gets full.
func smallDisk(t *testing.T) (dir string, full func(*testing.T) func()) {
	if os.Geteuid() != 0 {
		return "", nil
	}
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Logf("no disk can be made here, so it never gets full: %v", err)
		return "", nil
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(t *testing.T) func() {
		t.Helper()
		path := filepath.Join(dir, "filler")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 20; size > 0; {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				size /= 2
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return func() {
			// Emptied first: somebody who is just being forked may hold it open.
			if err := errors.Join(os.Truncate(path, 0), os.Remove(path)); err != nil {
				t.Error(err)
			}
		}
	}
}
