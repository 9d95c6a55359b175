// Package gvisortest helps tests that run gVisor sandboxes.
//
// gVisor executes the program it lives in anew, in an empty root directory, so
// that program must be linked statically. A test program often is not: cgo,
// and with it the race detector, links it to the system's C library.
package gvisortest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// variable hands the program to tests that are run by a test.
const variable = "SANDGATE_TEST_RUNSC"

var build struct {
	once sync.Once
	path string
	out  []byte
	err  error
}

// Executable returns the path of a program for gvisor.Config.Executable that
// every user may run. It is built once in a process; Remove deletes it.
func Executable(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	build.once.Do(func() {
		var dir string
		if dir, build.err = os.MkdirTemp("", "gvisortest-"); build.err != nil {
			return
		}
		build.path = filepath.Join(dir, "runsc")
		if build.err = os.Chmod(dir, 0o755); build.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", build.path, "github.com/sandgate/sandgate/sandbox/gvisor/gvisortest/runsc")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.out, build.err = cmd.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build a static runsc: %v\n%s", build.err, build.out)
	}
	return build.path
}

// Environ is the environment for a test program that is to use the same
// program.
func Environ(t testing.TB) []string {
	t.Helper()
	return append(os.Environ(), variable+"="+Executable(t))
}

// Remove deletes what Executable built. TestMain calls it at its end.
func Remove() error {
	if build.path == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(build.path))
}
