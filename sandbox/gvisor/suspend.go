package gvisor

import (
	"context"
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Suspend implements driver.Suspender.
//
// gVisor would end the sandbox by itself once it has written the image, and
// also when it has not. So it is asked to go on afterwards, while it is held
// still, and ended when the image is complete and durable: before that
// everything can be taken back, and nothing happens in the sandbox in between.
func (d *Driver) Suspend(ctx context.Context, id string) error {
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
	if !d.running(ctx, id) {
		return notRunning(id)
	}
	l := h.readLife()
	p := d.sentry(id)
	if p == nil {
		return notRunning(id)
	}
	defer p.close()
	release, err := d.hold(ctx, h.box)
	if errors.Is(err, errDown) {
		return notRunning(id)
	}
	if err != nil {
		return d.failure(err, "suspended", id)
	}
	if err := d.saveAll(ctx, h.box, r, l); err != nil {
		err = errors.Join(err, h.discardImage(), release())
		if errors.Is(err, errDown) {
			return notRunning(id)
		}
		return d.failure(err, "suspended", id)
	}
	// There is no way back from here, so nobody's patience matters any more.
	ctx = context.WithoutCancel(ctx)
	l.Ending = true
	err = writeJSON(h.life(), &l, false)
	if err == nil {
		err = p.kill()
	}
	if err == nil {
		err = waitDead(ctx, p)
	}
	if err != nil {
		return d.failure(errors.Join(err, h.discardImage(), release()), "suspended", id)
	}
	l.Exit = &driver.Exit{Reason: "suspended"}
	return d.failure(errors.Join(writeJSON(h.life(), &l, false), d.bury(ctx, id, false), h.forgetHold()), "suspended", id)
}

// finishSuspend ends a sandbox for a server that was killed while it did so: all
// was saved by then, and perhaps the sandbox is dying already.
func (d *Driver) finishSuspend(ctx context.Context, b box, l life) error {
	ctx = context.WithoutCancel(ctx)
	if p := d.sentry(b.id()); p != nil {
		defer p.close()
		err := p.kill()
		if dead := waitDead(ctx, p); dead != nil {
			return errors.Join(err, dead)
		}
	}
	l.Exit = &driver.Exit{Reason: "suspended"}
	return errors.Join(writeJSON(b.life(), &l, false), d.bury(ctx, b.id(), false), b.forgetHold())
}

// saveAll makes the files and the memory of a sandbox that is held still
// durable.
func (d *Driver) saveAll(ctx context.Context, b box, r *record, l life) error {
	img, err := imageOf(l.Build, r.Spec.Guest)
	if err != nil {
		return err
	}
	if r.Storage == sentryFile {
		// What to start from if the image will not do.
		if err := d.tarUpper(ctx, b, b.saved()); err != nil {
			return err
		}
	}
	files, err := b.createImage()
	if err != nil {
		return err
	}
	defer closeAll(files)
	opts := control.SaveOpts{Metadata: statefile.CompressionLevelNone.ToMetadata(), HavePagesFile: true, Resume: true}
	if err := d.call(ctx, b.id(), boot.ContMgrCheckpoint, &opts, nil, files...); err != nil {
		return fmt.Errorf("save the memory: %w", noSpace(err))
	}
	// gVisor has written the files of the sandbox to the host by now.
	if err := d.syncFiles(b, r); err != nil {
		return fmt.Errorf("save the files: %w", err)
	}
	return b.completeImage(files, img)
}

// syncFiles makes what a running sandbox has written durable.
func (d *Driver) syncFiles(b box, r *record) error {
	if r.Storage != hostOverlay {
		return nil
	}
	u, err := b.openPrivate(r)
	if err != nil {
		return err
	}
	defer u.close()
	return u.sync()
}

// Resume implements driver.Suspender.
func (d *Driver) Resume(ctx context.Context, id string) (driver.Resumption, error) {
	h, err := d.lock(ctx, id)
	if err != nil {
		return driver.Resumption{}, err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return driver.Resumption{}, broken(err, id)
	}
	if err := ctx.Err(); err != nil {
		return driver.Resumption{}, fault.From(err)
	}
	if d.running(ctx, id) {
		err := d.recoverHold(ctx, h.box)
		if err != nil || d.running(ctx, id) {
			return driver.Resumption{Memory: err == nil}, d.failure(err, "resumed", id)
		}
	}
	reason := "it was stopped, which keeps no memory"
	if h.hasImage() {
		reason, err = d.wake(ctx, h, r)
		if err != nil {
			return driver.Resumption{}, d.failure(err, "resumed", id)
		}
		if reason == "" {
			return driver.Resumption{Memory: true}, nil
		}
		d.log.Warn("resume a sandbox from its files alone", "sandbox", id, "reason", reason)
	}
	return driver.Resumption{Reason: reason}, d.start(ctx, h, r)
}

// wake brings a sandbox back from its memory image. The reason says why that
// was not possible; then nothing of the attempt is left.
func (d *Driver) wake(ctx context.Context, h *held, r *record) (reason string, err error) {
	now, err := imageOf(build(), r.Spec.Guest)
	if err != nil {
		return "", err
	}
	network, err := d.attach(ctx, r)
	if err != nil {
		return "", err
	}
	defer network.Close()
	// Once the image is used up, to give up would lose the processes.
	ctx = context.WithoutCancel(ctx)
	l := h.readLife()
	reason = h.checkImage(now)
	if reason == "" {
		if err := d.settle(ctx, h.box, r, &l); err != nil {
			return "", err
		}
		used := false
		err := d.launch(ctx, h, r, l, network, h.image(), func() error {
			err := h.useImage()
			used = err == nil
			return err
		})
		if err != nil && !used {
			return "", errors.Join(err, d.bury(ctx, h.id(), true))
		}
		if err == nil {
			var event boot.EventOut
			ping, cancel := context.WithTimeout(ctx, releaseTimeout)
			defer cancel()
			err = d.call(ping, h.id(), boot.ContMgrEvent, new(h.id()), &event)
		}
		if err != nil {
			d.log.Error("resume from a memory image", "sandbox", h.id(), "error", err)
			reason = "gVisor could not load its memory image"
			if err := d.bury(ctx, h.id(), true); err != nil {
				return "", err
			}
		}
	}
	return reason, h.discardImage()
}
