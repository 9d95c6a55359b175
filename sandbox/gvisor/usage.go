package gvisor

import (
	"context"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Usage implements driver.Stats. With cgroups it is what the host accounts
// for, gVisor's own needs included; without, what gVisor counts inside.
func (d *Driver) Usage(ctx context.Context, id string) (driver.Usage, error) {
	if _, err := d.inspectRunning(ctx, id); err != nil {
		return driver.Usage{}, err
	}
	b := d.box(id)
	r, err := b.readRecord()
	if err != nil {
		return driver.Usage{}, broken(err, id)
	}
	var event boot.EventOut
	if err := d.call(ctx, id, boot.ContMgrEvent, &id, &event); err != nil {
		return driver.Usage{}, dialFault(err, id)
	}
	u := driver.Usage{
		MemoryBytes: int64(event.Event.Data.Memory.Usage.Usage),
		CPU:         time.Duration(event.ContainerUsage[id]),
		Processes:   int64(event.Event.Data.Pids.Current),
		DiskBytes:   d.diskUse(ctx, b, r),
	}
	if h := d.host(); h.cgroups {
		d.accounted(h, id, &u)
	}
	return u, nil
}

// accounted replaces what the cgroups know better.
func (d *Driver) accounted(h host, id string, u *driver.Usage) {
	group := d.cgroupOf(id)
	if h.v2 {
		if n, err := h.read("", group, "memory.current", ""); err == nil {
			u.MemoryBytes = n
		}
		if n, err := h.read("", group, "cpu.stat", "usage_usec"); err == nil {
			u.CPU = time.Duration(n) * time.Microsecond
		}
		return
	}
	if n, err := h.read("memory", group, "memory.usage_in_bytes", ""); err == nil {
		u.MemoryBytes = n
	}
	if n, err := h.read("cpuacct", group, "cpuacct.usage", ""); err == nil {
		u.CPU = time.Duration(n)
	}
}
