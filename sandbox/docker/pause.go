package docker

import (
	"context"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// still calls read while no process of a sandbox runs, so that all it sees is
// of one moment. It is called with the sandbox's lock held.
//
// A crash in between leaves a container that is paused: whoever comes next
// lets it go (letGo). So a sandbox is paused only while its lock is held.
func (d *Driver) still(ctx context.Context, id string, o observed, read func() error) error {
	if o.state() != driver.Running {
		return read()
	}
	if !o.State.Paused {
		if _, err := d.cli.ContainerPause(ctx, o.ID, client.ContainerPauseOptions{}); err != nil && !notRunning(err) {
			return d.pauseError(ctx, o, err)
		}
	}
	err := read()
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if uerr := d.unpause(settle, o); uerr != nil {
		d.log.Error("a sandbox is held still and cannot be let go", "sandbox", id, "error", uerr)
		if err == nil {
			err = uerr
		}
	}
	return err
}

// pauseError also lets the sandbox go: a request that was cut off may have
// been heard.
func (d *Driver) pauseError(ctx context.Context, o observed, cause error) error {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := d.unpause(settle, o); err != nil {
		d.log.Error("a sandbox may be held still", "container", o.ID, "error", err)
	}
	return d.engineError(ctx, cause, "hold the sandbox still")
}

func (d *Driver) unpause(ctx context.Context, o observed) error {
	_, err := d.cli.ContainerUnpause(ctx, o.ID, client.ContainerUnpauseOptions{})
	if err == nil || notRunning(err) {
		return nil
	}
	// Some versions call it an internal error that nothing was paused.
	if r, ierr := d.cli.ContainerInspect(ctx, o.ID, client.ContainerInspectOptions{}); ierr == nil && r.Container.State != nil && !r.Container.State.Paused {
		return nil
	}
	return d.engineError(ctx, err, "let the sandbox go on")
}

// letGo lets a sandbox go on that a crash has left paused. It is called with
// the sandbox's lock held.
func (d *Driver) letGo(ctx context.Context, id string, o observed) error {
	if o.State == nil || !o.State.Paused {
		return nil
	}
	d.log.Warn("a sandbox was held still by nobody and goes on", "sandbox", id)
	return d.unpause(ctx, o)
}

// wake is letGo for who does not hold the lock.
func (d *Driver) wake(ctx context.Context, id string) error {
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	o, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	return d.letGo(ctx, id, o)
}
