package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Usage implements driver.Stats. The network is counted by who makes it.
func (d *Driver) Usage(ctx context.Context, id string) (driver.Usage, error) {
	u, err := d.use(ctx, id)
	if err == nil {
		u.DiskBytes = d.diskUse(ctx, id)
	}
	return u, err
}

// use is Usage without the disk.
func (d *Driver) use(ctx context.Context, id string) (driver.Usage, error) {
	o, err := d.inspect(ctx, id)
	if err != nil {
		return driver.Usage{}, err
	}
	if o.state() != driver.Running {
		return driver.Usage{}, stateFault(id, nil)
	}
	r, err := d.cli.ContainerStats(ctx, d.container(id), client.ContainerStatsOptions{})
	if errdefs.IsNotFound(err) {
		return driver.Usage{}, notFound(id)
	}
	if err != nil {
		return driver.Usage{}, d.engineError(ctx, err, "count")
	}
	defer r.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&s); err != nil {
		return driver.Usage{}, d.engineError(ctx, fmt.Errorf("read the statistics: %w", err), "count")
	}
	if s.PidsStats.Current == 0 { // ended between the two questions
		return driver.Usage{}, stateFault(id, nil)
	}
	// The page cache goes when somebody needs the memory. Its name depends on
	// the version of cgroups.
	cache := s.MemoryStats.Stats["inactive_file"]
	if v, ok := s.MemoryStats.Stats["total_inactive_file"]; ok {
		cache = v
	}
	return driver.Usage{
		MemoryBytes: int64(s.MemoryStats.Usage - min(cache, s.MemoryStats.Usage)),
		CPU:         time.Duration(s.CPUStats.CPUUsage.TotalUsage),
		Processes:   int64(s.PidsStats.Current),
		DiskBytes:   -1,
	}, nil
}
