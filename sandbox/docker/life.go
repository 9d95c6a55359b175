package docker

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, id string) error {
	if !driver.ValidID(id) {
		return notFound(id)
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	c, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	switch c.state() {
	case driver.Running:
		// Mended, where a crash has kept an earlier call from its end.
		if err := d.letGo(ctx, id, c); err != nil {
			return err
		}
		return d.connect(ctx, id)
	case driver.Broken:
		return fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
	case driver.Created, driver.Stopped:
	}
	// A start takes a moment and cannot be taken back in the middle of it: it
	// is finished, and undone when the caller has gone meanwhile.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if _, err := d.cli.ContainerStart(settle, d.container(id), client.ContainerStartOptions{}); err != nil {
		return d.engineError(settle, err, "start the sandbox")
	}
	err = d.connect(settle, id)
	if err == nil && ctx.Err() != nil {
		err = fault.From(ctx.Err())
	}
	if err != nil {
		if kerr := d.kill(settle, id); kerr != nil {
			d.log.Error("a sandbox that could not be started whole runs on", "sandbox", id, "error", kerr)
		}
	}
	return err
}

// Stop implements driver.Driver. It waits for the sandbox to end by itself
// without holding the lock, so that a Stop with less grace, or a Remove,
// overtakes it.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	if !driver.ValidID(id) {
		return notFound(id)
	}
	first, err := d.askToStop(ctx, id, grace)
	if err != nil || first == "" {
		return err
	}
	if grace > 0 {
		waiting, cancel := context.WithTimeout(ctx, grace)
		err := d.awaitStop(waiting, id)
		cancel()
		if err == nil || ctx.Err() != nil {
			return d.engineError(ctx, err, "wait for the sandbox")
		}
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	c, err := d.inspect(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil // removed meanwhile: it does not run
	}
	if err != nil {
		return err
	}
	if c.State.StartedAt != first {
		return nil // ended, and somebody started it again
	}
	return d.kill(ctx, id)
}

// askToStop sends SIGTERM, when there is grace, and returns which start of the
// sandbox it was sent to; "" when it does not run.
func (d *Driver) askToStop(ctx context.Context, id string, grace time.Duration) (string, error) {
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return "", fault.From(err)
	}
	defer unlock()
	c, err := d.inspect(ctx, id)
	if err != nil || c.state() != driver.Running {
		return "", err
	}
	if err := d.letGo(ctx, id, c); err != nil {
		return "", err
	}
	if grace > 0 {
		_, err := d.cli.ContainerKill(ctx, d.container(id), client.ContainerKillOptions{Signal: "SIGTERM"})
		if err != nil && !notRunning(err) {
			return "", d.engineError(ctx, err, "stop the sandbox")
		}
	}
	return c.State.StartedAt, nil
}

// kill ends a sandbox at once and waits until it has. It is called with the
// sandbox's lock held: an engine may wait for ever for the end of a container
// that is paused.
func (d *Driver) kill(ctx context.Context, id string) error {
	d.cutStreams(id)
	c, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	if err := d.letGo(ctx, id, c); err != nil {
		return err
	}
	_, err = d.cli.ContainerKill(ctx, d.container(id), client.ContainerKillOptions{Signal: "SIGKILL"})
	if err != nil && !notRunning(err) {
		return d.engineError(ctx, err, "stop the sandbox")
	}
	return d.engineError(ctx, d.awaitStop(ctx, id), "wait for the sandbox")
}

// notRunning reports whether the engine refused because nothing runs.
func notRunning(err error) bool { return errdefs.IsConflict(err) || errdefs.IsNotFound(err) }

// awaitStop waits until the container does not run or does not exist. The
// error is the client's.
func (d *Driver) awaitStop(ctx context.Context, id string) error {
	w := d.cli.ContainerWait(ctx, d.container(id), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-w.Result:
		return nil
	case err := <-w.Error:
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err // also when the context ends
	}
}

// Wait implements driver.Driver. An engine that goes away, as it does when it
// is restarted, is waited for.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Status, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		s, err := d.Inspect(ctx, id)
		switch {
		case err == nil && s.State != driver.Running:
			return s, nil
		case err == nil:
			if err = d.awaitStop(ctx, id); err == nil {
				pause = 0 // look again at once
			}
		case !fault.Is(err, fault.Unavailable):
			return driver.Status{}, err
		}
		if ctx.Err() != nil {
			return driver.Status{}, fault.From(ctx.Err())
		}
		if err != nil {
			d.log.Debug("waiting for the engine", "sandbox", id, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
