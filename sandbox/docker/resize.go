package docker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// How an update says that a limit ends: 0 says that it stays. For memory the
// engine has no word, so it is given more than there is.
const (
	unlimited       = -1
	unlimitedMemory = 1 << 50
)

// Resize implements driver.Resizer.
func (d *Driver) Resize(ctx context.Context, id string, limits driver.Limits) error {
	if !driver.ValidID(id) {
		return notFound(id)
	}
	for field, value := range map[string]int64{
		driver.FeatureMemoryLimit: limits.MemoryBytes, driver.FeatureCPULimit: limits.CPUMillis,
		driver.FeatureDiskLimit: limits.DiskBytes, driver.FeatureProcessLimit: limits.Processes,
	} {
		if value < 0 {
			return fault.InvalidField(field, "must not be negative")
		}
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	o, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	if o.state() == driver.Broken || o.HostConfig == nil {
		return fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
	}
	now := limitsOf(o.HostConfig)
	if limits.DiskBytes != now.DiskBytes {
		return fault.New(fault.Unsupported, "%s: docker sets it when a sandbox is made and cannot change it", driver.FeatureDiskLimit)
	}
	// What the engine cannot enforce it would not refuse to note.
	if err := d.checkLimits(ctx, limits); err != nil {
		return err
	}
	limits = d.affordable(limits)
	if limits == now {
		return nil
	}
	if o.state() == driver.Running {
		if err := d.fits(ctx, id, limits, now); err != nil {
			return err
		}
	}
	_, err = d.cli.ContainerUpdate(ctx, o.ID, client.ContainerUpdateOptions{Resources: d.resources(limits)})
	switch {
	case errdefs.IsNotFound(err):
		return notFound(id)
	case errdefs.IsInvalidArgument(err):
		return fault.Wrap(err, fault.Invalid, "the docker engine refuses these limits: %s", oneLine(err.Error()))
	case err != nil:
		return d.engineError(ctx, err, "change the limits")
	}
	return nil
}

// fits refuses limits that a running sandbox exceeds already: with one version
// of cgroups the kernel would refuse them, with the other end the sandbox.
func (d *Driver) fits(ctx context.Context, id string, limits, now driver.Limits) error {
	lower := func(limit, now int64) bool { return limit > 0 && (now == 0 || limit < now) }
	if !lower(limits.MemoryBytes, now.MemoryBytes) && !lower(limits.Processes, now.Processes) {
		return nil
	}
	u, err := d.use(ctx, id)
	switch {
	case fault.Is(err, fault.State):
		return nil // it has ended meanwhile
	case err != nil:
		return err
	case limits.MemoryBytes > 0 && u.MemoryBytes > limits.MemoryBytes:
		return fault.InvalidField(driver.FeatureMemoryLimit, "the sandbox uses %d MiB already, more than %s", u.MemoryBytes>>20, size(limits.MemoryBytes))
	case limits.Processes > 0 && u.Processes > limits.Processes:
		return fault.InvalidField(driver.FeatureProcessLimit, "%d processes and threads run in the sandbox already, more than %d", u.Processes, limits.Processes)
	}
	return nil
}

// resources is an update that sets every limit.
func (d *Driver) resources(l driver.Limits) *container.Resources {
	r := &container.Resources{Memory: unlimitedMemory, MemorySwap: unlimitedMemory}
	if l.MemoryBytes > 0 {
		r.Memory, r.MemorySwap = l.MemoryBytes, l.MemoryBytes // both together: no swap
	}
	// The engine has no word for a cpu limit that ends, but all of them are
	// as many as there are.
	r.NanoCPUs = l.CPUMillis * 1e6
	if l.CPUMillis == 0 {
		r.NanoCPUs = d.allCPUs() * 1e9
	}
	processes := int64(unlimited)
	if l.Processes > 0 {
		processes = l.Processes
	}
	r.PidsLimit = &processes
	return r
}

// limitsOf reads the limits of a container.
func limitsOf(h *container.HostConfig) driver.Limits {
	l := driver.Limits{CPUMillis: h.NanoCPUs / 1e6}
	if h.Memory > 0 && h.Memory < unlimitedMemory {
		l.MemoryBytes = h.Memory
	}
	if h.PidsLimit != nil {
		l.Processes = max(*h.PidsLimit, 0)
	}
	// The driver has written it; without one there is no limit.
	l.DiskBytes, _ = strconv.ParseInt(h.StorageOpt["size"], 10, 64)
	return l
}

// affordable takes a cpu limit that is more than the machine has for what it
// has: the engine would refuse it.
func (d *Driver) affordable(l driver.Limits) driver.Limits {
	if n := d.allCPUs(); n > 0 {
		l.CPUMillis = min(l.CPUMillis, n*1000)
	}
	return l
}

// allCPUs is how many processors the engine has, 0 while it has not said.
func (d *Driver) allCPUs() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.info == nil {
		return 0
	}
	return int64(d.info.NCPU)
}

// checkLimits returns Unsupported for a limit that the engine cannot enforce.
func (d *Driver) checkLimits(ctx context.Context, l driver.Limits) error {
	return d.checkSupport(ctx, driver.Spec{Limits: l})
}

// resizeSupport says whether limits can be changed.
func resizeSupport(memory, cpu, processes bool) driver.Support {
	if memory && cpu && processes {
		return driver.Support{OK: true, Reason: "memory, cpu and processes; the disk limit stays"}
	}
	return driver.Support{Reason: fmt.Sprintf("the docker engine lacks cgroup controllers (memory %t, cpu %t, pids %t)", memory, cpu, processes)}
}
