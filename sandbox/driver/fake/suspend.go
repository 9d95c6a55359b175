package fake

import (
	"context"
	"slices"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

var (
	_ driver.Suspender = (*Driver)(nil)
	_ driver.Resizer   = (*Driver)(nil)
)

// image is a life that waits to go on: its processes are stopped by signal,
// and nobody can reach its guest.
type image struct {
	run   *run
	spoil string // why it does not fit any more; empty when it does
}

// freeze stops every process of the life. It looks again until it finds no
// new one: a process may be just making another.
func (r *run) freeze() {
	frozen := make(map[int]bool)
	for found := true; found; {
		found = false
		processes(r.mark, func(pid int) {
			if !frozen[pid] {
				frozen[pid], found = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP) // gone already is as good
			}
		})
	}
}

// thaw lets the processes go on, the youngest first: a shell that goes on
// before its child would take it for stopped by a user.
func (r *run) thaw() {
	var all []int
	processes(r.mark, func(pid int) { all = append(all, pid) })
	slices.Sort(all)
	for _, pid := range slices.Backward(all) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // gone already is as good
	}
}

// Suspend implements driver.Suspender.
func (d *Driver) Suspend(ctx context.Context, id string) error {
	if err := d.enter(ctx, Suspend, driver.FeatureCheckpoint); err != nil {
		return err
	}
	return d.locked(ctx, id, func(b *box) error {
		if !b.park() {
			return fault.New(fault.State, "sandbox %s does not run", id).About("sandbox")
		}
		return nil
	})
}

// park makes the present life an image, if there is one.
func (b *box) park() bool {
	r := b.current()
	if r == nil {
		return false
	}
	r.freeze()
	b.mu.Lock()
	if b.run != r || r.ending {
		b.mu.Unlock()
		return false // it has ended meanwhile
	}
	r.ending, r.parked = true, true
	r.exit = driver.Exit{Reason: "suspended"}
	r.dropStreams()
	b.image = &image{run: r}
	b.mu.Unlock()
	close(r.park)
	<-r.over
	return true
}

// Resume implements driver.Suspender.
func (d *Driver) Resume(ctx context.Context, id string) (driver.Resumption, error) {
	if err := d.enter(ctx, Resume, driver.FeatureCheckpoint); err != nil {
		return driver.Resumption{}, err
	}
	var how driver.Resumption
	err := d.locked(ctx, id, func(b *box) error {
		switch b.status().State {
		case driver.Broken:
			return fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
		case driver.Running:
			how.Reason = "it was running"
			return nil
		}
		b.mu.Lock()
		i := b.image
		b.mu.Unlock()
		if i != nil && i.spoil == "" {
			how.Memory = true
			b.wake(i.run)
			return nil
		}
		how.Reason = "there was no memory image"
		if i != nil {
			how.Reason = i.spoil
			b.discardImage()
		}
		b.boot()
		return nil
	})
	return how, err
}

// wake goes on with a life that was parked.
func (b *box) wake(old *run) {
	b.live(old.agent, old.mark)
	b.mu.Lock()
	b.image = nil
	r := b.run
	b.mu.Unlock()
	r.thaw()
}

// discardImage ends a life that waits, if there is one.
func (b *box) discardImage() {
	b.mu.Lock()
	i := b.image
	b.image = nil
	b.mu.Unlock()
	if i != nil {
		i.run.kill()
		<-i.run.agent.Done()
		killAll(i.run.mark)
	}
}

// SpoilMemory makes the memory image of a suspended sandbox one that does not
// fit any more, for the reason that Resume is to give.
func (h *Host) SpoilMemory(id, reason string) {
	b := h.find(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.image != nil {
		b.image.spoil = reason
	}
}

// Resize implements driver.Resizer: the limits are kept, as all limits of the
// fake are, and not enforced.
func (d *Driver) Resize(ctx context.Context, id string, limits driver.Limits) error {
	if err := d.enter(ctx, Resize, driver.FeatureResize); err != nil {
		return err
	}
	return d.locked(ctx, id, func(b *box) error {
		support := d.support()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range []struct {
			feature         string
			old, next, used int64
		}{
			{driver.FeatureMemoryLimit, b.spec.Limits.MemoryBytes, limits.MemoryBytes, b.usage.MemoryBytes},
			{driver.FeatureCPULimit, b.spec.Limits.CPUMillis, limits.CPUMillis, 0},
			{driver.FeatureDiskLimit, b.spec.Limits.DiskBytes, limits.DiskBytes, b.usage.DiskBytes},
			{driver.FeatureProcessLimit, b.spec.Limits.Processes, limits.Processes, b.usage.Processes},
		} {
			switch {
			case l.next < 0:
				return fault.InvalidField(l.feature, "must not be negative")
			case l.next == l.old:
			case l.next > 0 && !support[l.feature].OK:
				return fault.New(fault.Unsupported, "%s: %s", l.feature, support[l.feature].Reason)
			case l.next > 0 && b.run != nil && l.used > l.next:
				return fault.InvalidField(l.feature, "the sandbox uses %d already, more than %d", l.used, l.next)
			}
		}
		b.spec.Limits = limits
		return nil
	})
}
