package docker_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/modeltest"
)

// TestModel holds the engine on this driver to a model of its promises.
func TestModel(t *testing.T) {
	cli := engine(t)
	steps := 100
	if testing.Short() {
		steps = 40
	}
	state := stateDir(t)
	pid := func(id string) int {
		list, err := cli.ContainerList(context.Background(), client.ContainerListOptions{Filters: byID(id)})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("container of %s: %v, %v", id, list.Items, err)
			return 0
		}
		c, err := cli.ContainerInspect(context.Background(), list.Items[0].ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Error(err)
			return 0
		}
		return c.Container.State.Pid
	}
	signal := func(id string, s syscall.Signal) {
		if p := pid(id); p > 1 {
			_ = syscall.Kill(p, s)
		}
	}
	modeltest.Run(t, modeltest.Harness{
		Driver: func(t *testing.T) driver.Driver { return open(t, docker.Config{StateDir: state}) },
		Rootfs: drivertest.BusyboxRootfs(t),
		Guest:  driver.Guest{Path: drivertest.BuildGuest(t)},
		Steps:  steps,
		Kill:   func(id string) { signal(id, syscall.SIGKILL) },
		Freeze: func(_ *testing.T, id string) func() {
			signal(id, syscall.SIGSTOP)
			return func() { signal(id, syscall.SIGCONT) }
		},
	})
}
