package docker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
)

// engine returns a client of the engine the tests run against. It skips the
// test where none answers.
func engine(tb testing.TB) *client.Client {
	tb.Helper()
	cli, err := client.New(client.FromEnv)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cli.Close() })
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	if _, err := cli.Ping(ctx, client.PingOptions{}); err != nil {
		tb.Skipf("no docker engine answers at %s: %v", cli.DaemonHost(), err)
	}
	return cli
}

// open opens a driver whose log goes to the test, if it fails.
func open(tb testing.TB, cfg docker.Config) *docker.Driver {
	tb.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	d, err := docker.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func harness(tb testing.TB, cfg docker.Config) drivertest.Harness {
	tb.Helper()
	cli := engine(tb)
	var seen sync.Map // state folders
	return drivertest.Harness{
		New: func(tb testing.TB, state string) driver.Driver {
			tb.Helper()
			cfg := cfg
			cfg.StateDir = state
			if _, again := seen.LoadOrStore(state, true); !again {
				// By then the suite has removed its sandboxes and the folder;
				// images, a cache, are still there.
				tb.Cleanup(func() {
					if err := os.MkdirAll(state, 0o700); err != nil {
						tb.Fatal(err)
					}
					purge(tb, state)
					if err := os.RemoveAll(state); err != nil {
						tb.Error(err)
					}
				})
			}
			return open(tb, cfg)
		},
		Rootfs: drivertest.BusyboxRootfs(tb),
		Guest:  driver.Guest{Path: drivertest.BuildGuest(tb)},
		Expect: []string{
			driver.FeatureMemoryLimit, driver.FeatureCPULimit, driver.FeatureProcessLimit,
			driver.FeatureHostDirs, driver.FeatureDurableFiles, driver.FeatureSave, driver.FeatureResize,
		},
		Leaks: func(tb testing.TB, _, id string) []string {
			tb.Helper()
			return leaks(tb, cli, id)
		},
		Damage: func(tb testing.TB, _, id string) {
			tb.Helper()
			for _, name := range containers(tb, cli, id) {
				if _, err := cli.ContainerRemove(tb.Context(), name, client.ContainerRemoveOptions{Force: true}); err != nil {
					tb.Fatal(err)
				}
			}
		},
	}
}

func byID(id string) client.Filters { return make(client.Filters).Add("label", "sandgate.id="+id) }

func containers(tb testing.TB, cli *client.Client, id string) []string {
	tb.Helper()
	list, err := cli.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: byID(id)})
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.ID)
	}
	return names
}

// leaks lists everything in the engine that has the sandbox's label.
func leaks(tb testing.TB, cli *client.Client, id string) []string {
	tb.Helper()
	var lines []string
	for _, c := range containers(tb, cli, id) {
		lines = append(lines, "container "+c)
	}
	volumes, err := cli.VolumeList(context.Background(), client.VolumeListOptions{Filters: byID(id)})
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range volumes.Items {
		lines = append(lines, "volume "+v.Name)
	}
	images, err := cli.ImageList(context.Background(), client.ImageListOptions{All: true, Filters: byID(id)})
	if err != nil {
		tb.Fatal(err)
	}
	for _, i := range images.Items {
		lines = append(lines, fmt.Sprintf("image %s %v", i.ID, i.RepoTags))
	}
	return lines
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(t, docker.Config{}))
}

func BenchmarkDriver(b *testing.B) {
	drivertest.Benchmark(b, harness(b, docker.Config{}))
}
