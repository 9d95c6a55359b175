package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// limitChange is one limit that is to become another.
type limitChange struct {
	name      string // as in driver.Capabilities
	is, wants int64
}

func limitChanges(is, wants driver.Limits) []limitChange {
	var changed []limitChange
	for _, c := range []limitChange{
		{driver.FeatureMemoryLimit, is.MemoryBytes, wants.MemoryBytes},
		{driver.FeatureCPULimit, is.CPUMillis, wants.CPUMillis},
		{driver.FeatureDiskLimit, is.DiskBytes, wants.DiskBytes},
		{driver.FeatureProcessLimit, is.Processes, wants.Processes},
	} {
		if c.is != c.wants {
			changed = append(changed, c)
		}
	}
	return changed
}

// Resize implements driver.Resizer. Memory and CPU are the host's to limit. The
// number of processes is one that every process inside inherited, and a file
// system has the size it was made with. What programs read of these limits
// inside, such as in /proc/meminfo, stays as it was until the next start.
func (d *Driver) Resize(ctx context.Context, id string, limits driver.Limits) error {
	h, err := d.lock(ctx, id)
	if err != nil {
		return err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return broken(err, id)
	}
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	changed := r.Spec
	changed.Limits = limits
	if err := changed.Validate(); err != nil {
		return err
	}
	if err := d.host().checkLimits(changed); err != nil {
		return err
	}
	running := d.running(ctx, id)
	for _, c := range limitChanges(r.Spec.Limits, limits) {
		switch {
		case c.name == driver.FeatureDiskLimit:
			return fault.New(fault.Unsupported, "the %s of a sandbox cannot be changed; make a snapshot and create another sandbox from it", c.name).About("sandbox")
		case c.name == driver.FeatureProcessLimit && running:
			return fault.New(fault.Unsupported, "the %s of a running sandbox cannot be changed; stop it first", c.name).About("sandbox")
		}
	}
	// Written first: a crash in between leaves limits that the next start sets.
	before := r.Spec.Limits
	r.Spec.Limits = limits
	if err := writeJSON(h.record(), r, true); err != nil {
		return d.failure(err, "resized", id)
	}
	if !running || !d.host().cgroups {
		return nil
	}
	if err := d.applyLimits(id, limits); err != nil {
		r.Spec.Limits = before
		// Those of the limits that were set already, too.
		if undo := d.applyLimits(id, before); undo != nil {
			d.log.Error("undo a change of limits", "sandbox", id, "error", undo)
		}
		if undo := writeJSON(h.record(), r, true); undo != nil {
			d.log.Error("undo a change of limits", "sandbox", id, "error", undo)
		}
		return d.failure(err, "resized", id)
	}
	return nil
}

// applyLimits sets the limits of a sandbox's group to what they are to be,
// unlimited ones included.
func (d *Driver) applyLimits(id string, l driver.Limits) error {
	h, group := d.host(), d.cgroupOf(id)
	if n := l.MemoryBytes; n > 0 {
		// Where the kernel would make room it kills processes for it (version
		// 2), and where it takes a limit only if there is room it may not know
		// before (version 1).
		if used := h.memoryUsed(group); used > n {
			return fault.InvalidField(driver.FeatureMemoryLimit, "the sandbox uses %s already, more than %s", size((used+1<<20-1)>>20<<20), size(n))
		}
	}
	var failed error
	// The limit of memory and swap together is never below that of memory
	// alone: one order is right for more, the other for less.
	for range 2 {
		failed = nil
		for _, s := range h.resettings(l) {
			path := h.file(s.controller, group, s.name)
			if _, err := os.Stat(path); err != nil && s.optional {
				continue
			}
			if err := os.WriteFile(path, []byte(s.value), 0); err != nil {
				failed = fmt.Errorf("set %s to %s: %w", s.name, s.value, err)
			}
		}
		if failed == nil {
			return nil
		}
	}
	if errors.Is(failed, unix.EBUSY) {
		return fault.InvalidField(driver.FeatureMemoryLimit, "the sandbox uses more than %s already", size(l.MemoryBytes))
	}
	return failed
}

// memoryUsed is what a group cannot give back.
func (h hierarchy) memoryUsed(group string) int64 {
	name, cache := "memory.usage_in_bytes", "total_cache"
	shared := "total_shmem"
	if h.v2 {
		name, cache, shared = "memory.current", "file", "shmem"
	}
	used, err := h.read("memory", group, name, "")
	if err != nil {
		return 0
	}
	pages, _ := h.read("memory", group, "memory.stat", cache)
	held, _ := h.read("memory", group, "memory.stat", shared)
	return used - max(pages-held, 0)
}

// resettings are the settings of all limits, those that are not limited too.
func (h hierarchy) resettings(l driver.Limits) []setting {
	all := h.settings(l)
	limited := make(map[string]bool) // by controller
	for _, s := range all {
		limited[s.controller] = true
	}
	unlimited := []setting{
		{"memory", "memory.memsw.limit_in_bytes", "-1", true},
		{"memory", "memory.limit_in_bytes", "-1", true},
		{"cpu", "cpu.cfs_quota_us", "-1", true},
	}
	if h.v2 {
		unlimited = []setting{
			{"memory", "memory.max", "max", true},
			{"memory", "memory.swap.max", "max", true},
			{"cpu", "cpu.max", "max", true},
		}
	}
	for _, s := range append(unlimited, setting{"pids", "pids.max", "max", true}) {
		if !limited[s.controller] {
			all = append(all, s)
		}
	}
	return all
}
