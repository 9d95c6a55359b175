package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
		DiskBytes:   b.diskUse(ctx, r),
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

// diskUse is what the private layer takes on the host's disk. For a disk image
// that is what is allocated of it; else the files are counted, as long as ctx
// allows. What gVisor keeps in its own file is not known.
func (b box) diskUse(ctx context.Context, r *record) int64 {
	if r.Storage != hostOverlay {
		return -1
	}
	if r.Spec.Limits.DiskBytes > 0 {
		var st unix.Stat_t
		if err := unix.Lstat(b.disk(), &st); err != nil {
			return -1
		}
		return st.Blocks * 512
	}
	root, err := os.OpenRoot(b.data())
	if err != nil {
		return -1
	}
	defer root.Close()
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // deleted meanwhile
			}
			return err
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*unix.Stat_t); ok {
				total += st.Blocks * 512
			} else {
				total += info.Size()
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return -1
	}
	return total
}
