package sandbox

import (
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// diskSpace refuses what would keep more on the server's disk when little is
// left of it: what is there already must be able to go on.
func (e *Engine) diskSpace() error {
	if e.cfg.DiskFloor <= 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(e.cfg.LayersDir, &st); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the disk of the server cannot be looked at")
	}
	if left := int64(st.Bavail) * st.Bsize; left < e.cfg.DiskFloor {
		return fault.New(fault.Exhausted, "the disk of the server is nearly full (%s left, %s are kept free); delete sandboxes or snapshots",
			FormatBytes(left&^(1<<20-1)), FormatBytes(e.cfg.DiskFloor)).About("sandbox")
	}
	return nil
}
