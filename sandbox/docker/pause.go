package docker

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
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
	open, err := d.calm(ctx, id)
	if err != nil {
		return err
	}
	defer open()
	// Paused by a crash of a server that had to ask the engine, or by hand.
	if err := d.letGo(ctx, id, o); err != nil {
		return err
	}
	info, err := d.knownInfo(ctx)
	if err != nil {
		return err
	}
	if ok, _ := d.readsFiles(info); ok {
		if z, ok := freezerOf(o.State.Pid, o.ID); ok {
			return d.held(ctx, id, z, read)
		}
	}
	return d.paused(ctx, id, o, read)
}

// paused calls read while the engine holds a sandbox.
func (d *Driver) paused(ctx context.Context, id string, o observed, read func() error) error {
	if err := d.pause(ctx, id, o); err != nil {
		return err
	}
	err := read()
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if uerr := d.unpause(settle, o.ID, true); uerr != nil {
		d.log.Error("a sandbox is held still and cannot be let go", "sandbox", id, "error", uerr)
		if err == nil {
			err = uerr
		}
	}
	return err
}

// What an engine says of a pause may be late by a moment: it hears of it a
// second time, from below, and takes an old one for the present. So its word
// counts only when it stays the same.
const (
	pauseSettles = 5 * time.Second
	pauseAgain   = 5 * time.Millisecond
)

// pause pauses a container that runs. One that has ended needs no pause.
func (d *Driver) pause(ctx context.Context, id string, o observed) error {
	for began := time.Now(); ; {
		_, err := d.cli.ContainerPause(ctx, o.ID, client.ContainerPauseOptions{})
		if err == nil {
			return nil
		}
		now, ierr := d.inspect(ctx, id)
		if ierr == nil && now.state() != driver.Running {
			return nil
		}
		// By whom it may be paused already is not known, nor whether it is so.
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		uerr := d.unpause(settle, o.ID, false)
		cancel()
		if uerr != nil {
			d.log.Error("a sandbox may be held still", "sandbox", id, "error", uerr)
		}
		if ierr != nil || ctx.Err() != nil || time.Since(began) > pauseSettles {
			return d.engineError(ctx, err, "hold the sandbox still")
		}
		<-time.After(pauseAgain)
	}
}

// unpause lets a container go and returns when the engine has done it. That it
// was not paused is believed at once only when nobody is certain that it was.
func (d *Driver) unpause(ctx context.Context, name string, certain bool) error {
	for began := time.Now(); ; {
		_, err := d.cli.ContainerUnpause(ctx, name, client.ContainerUnpauseOptions{})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		r, ierr := d.cli.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		settled := !certain || time.Since(began) > pauseSettles
		switch {
		case errdefs.IsNotFound(ierr), ierr == nil && (r.Container.State == nil || !r.Container.State.Running):
			return nil
		case ierr == nil && settled && !r.Container.State.Paused:
			return nil
		case ctx.Err() != nil, time.Since(began) > 2*pauseSettles:
			return d.engineError(ctx, err, "let the sandbox go on")
		}
		<-time.After(pauseAgain)
	}
}

// letGo lets a sandbox go on that a crash has left paused. It is called with
// the sandbox's lock held.
func (d *Driver) letGo(ctx context.Context, id string, o observed) error {
	if o.State == nil || !o.State.Paused {
		return nil
	}
	d.log.Warn("a sandbox was held still by nobody and goes on", "sandbox", id)
	return d.unpause(ctx, o.ID, false)
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
