package sandbox_test

import (
	"fmt"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
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
			modeltest.Run(t, modeltest.Harness{
				Driver: func(*testing.T) driver.Driver { return fake.New(fake.Config{Host: host, Unsupported: unsupported}) },
				Rootfs: driver.Rootfs{Layers: []string{t.TempDir()}},
				Guest:  driver.Guest{Path: guestProgram(t)},
				Steps:  steps,
				Kill:   host.Kill,
				Full: func(*testing.T) func() {
					host.FailNext(fake.Create, fault.New(fault.Exhausted, "the disk is full"))
					return func() { host.FailNext(fake.Create, nil) }
				},
			})
		})
	}
}
