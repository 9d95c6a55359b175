// Package drivertest is the conformance suite of the driver contract: every
// sentence of package driver that can be observed from outside is a test here,
// and every driver passes the same ones.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{
//			New:    func(t testing.TB, state string) driver.Driver { … },
//			Rootfs: drivertest.BusyboxRootfs(t),
//			Guest:  driver.Guest{Path: drivertest.BuildGuest(t)},
//		})
//	}
//
// The suite runs real commands in real sandboxes over the real guest. Tests
// run in parallel, bounded by the -parallel flag of go test, against one
// driver value, so that they also test each other's independence; tests that
// restart the server use state folders of their own.
package drivertest

import (
	"slices"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Harness tells the suite how to make one driver and what this machine lets
// it expect. New, Rootfs and Guest are required.
type Harness struct {
	// New opens a driver on a state folder, which exists. The suite closes
	// what it returns. It is called again with the same folder after a Close:
	// that is a restart of the server.
	New func(t testing.TB, state string) driver.Driver

	// Rootfs holds at least a POSIX shell and the usual small programs; see
	// BusyboxRootfs.
	Rootfs driver.Rootfs

	// Guest is the guest program; see BuildGuest.
	Guest driver.Guest

	// Expect names features (driver.Feature…) that must work on this machine,
	// so that a probe that fails for no reason does not turn tests into skips.
	Expect []string

	// NoWalls, when not empty, is the reason why the tests of isolation and
	// of enforced limits cannot run: the driver's processes run on the host.
	NoWalls string

	// Leaks returns what the host still holds of a sandbox that was removed or
	// could not be made: containers, mounts, cgroups, namespaces, processes,
	// files. One line each. Nil skips these checks.
	Leaks func(t testing.TB, state, id string) []string

	// Damage takes a part of a stopped sandbox away behind the driver's back,
	// such that only Remove makes sense. Nil skips the test of leftovers.
	Damage func(t testing.TB, state, id string)

	// DamageMemory spoils the memory image of a suspended sandbox behind the
	// driver's back. Nil skips the test of it.
	DamageMemory func(t testing.TB, state, id string)
}

// test is one entry of the suite.
type test struct {
	name  string
	walls bool   // needs real isolation
	needs string // feature it needs
	run   func(t *testing.T, e *env)
}

// tests lists the suite in the order of the contract's text.
func tests() []test {
	return slices.Concat(
		capabilityTests(),
		createTests(),
		specTests(),
		startTests(),
		dialTests(),
		rogueTests(),
		execTests(),
		fileTests(),
		socketTests(),
		transferTests(),
		layerTests(),
		stopTests(),
		waitTests(),
		removeTests(),
		saveTests(),
		restoreTests(),
		exportTests(),
		suspendTests(),
		resizeTests(),
		restartTests(),
		concurrencyTests(),
		isolationTests(),
		limitTests(),
		escapeTests(),
	)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Setenv(secretName, secretValue) // must not reach a sandbox
	e := newEnv(t, h)
	for _, tt := range tests() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.walls && h.NoWalls != "" {
				t.Skip(h.NoWalls)
			}
			if tt.needs != "" {
				e.need(t, tt.needs)
			}
			tt.run(t, e)
		})
	}
}

func capabilityTests() []test {
	return []test{{name: "Capabilities", run: testCapabilities}}
}

func testCapabilities(t *testing.T, e *env) {
	caps, err := e.d.Capabilities(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if caps.Driver != e.d.Name() || caps.Driver == "" {
		t.Errorf("Driver is %q, Name() is %q", caps.Driver, e.d.Name())
	}
	if caps.Version == "" || caps.Mode == "" {
		t.Errorf("version %q and mode %q must both be said", caps.Version, caps.Mode)
	}
	for _, feature := range driver.Features() {
		s, ok := caps.Support[feature]
		switch {
		case !ok:
			t.Errorf("%s: no entry", feature)
		case !s.OK && s.Reason == "":
			t.Errorf("%s: unsupported without a reason", feature)
		case !oneLine(s.Reason) && s.Reason != "":
			t.Errorf("%s: reason %q is not one line", feature, s.Reason)
		}
		t.Logf("%-60s %-5v %s", feature, s.OK, s.Reason)
	}
	for feature := range caps.Support {
		if !slices.Contains(driver.Features(), feature) {
			t.Errorf("%q is no feature of the contract", feature)
		}
	}
	for _, feature := range e.h.Expect {
		if s := caps.Support[feature]; !s.OK {
			t.Errorf("%s must work on this machine, but: %s", feature, s.Reason)
		}
	}
}
