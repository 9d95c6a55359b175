package drivertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The programs the tests need.
const (
	guestPackage = "github.com/sandgate/sandgate/cmd/sandgate-guest"
	roguePackage = "github.com/sandgate/sandgate/sandbox/driver/drivertest/rogue"
	// What attacks from inside a sandbox.
	escapePackage = "github.com/sandgate/sandgate/sandbox/driver/drivertest/escape"
)

// Prebuilt names an environment variable: a directory that holds the programs
// already, for a suite that runs as a user who cannot build them.
const Prebuilt = "SANDGATE_DRIVERTEST_PROGRAMS"

// BuildGuest builds the guest program and returns its path. It is deleted at
// the end of t.
func BuildGuest(t testing.TB) string {
	t.Helper()
	return buildProgram(t, guestPackage)
}

// Prebuild builds all programs of the suite into dir, for Prebuilt.
func Prebuild(t testing.TB, dir string) {
	t.Helper()
	for _, pkg := range []string{guestPackage, roguePackage, escapePackage} {
		buildInto(t, filepath.Join(dir, filepath.Base(pkg)), pkg)
	}
}

// buildProgram builds a static program of this module for the time of t.
func buildProgram(t testing.TB, pkg string) string {
	t.Helper()
	if dir := os.Getenv(Prebuilt); dir != "" {
		return filepath.Join(dir, filepath.Base(pkg))
	}
	dir, err := os.MkdirTemp("", "sgt-bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, filepath.Base(pkg))
	buildInto(t, path, pkg)
	return path
}

func buildInto(t testing.TB, path, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}
