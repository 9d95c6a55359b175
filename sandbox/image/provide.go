package image

import (
	"context"
	"errors"
	"syscall"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Provide returns the root filesystem of a runtime, making it first if it is
// not on this host. See sandbox.RootfsProvider. Callers that want the same
// runtime at the same time share one build and all see its progress; progress
// is called from the caller's own goroutine and may be nil.
func (c *Catalog) Provide(ctx context.Context, nameOrID string, progress func(line string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if progress == nil {
		progress = func(string) {}
	}
	d, err := c.find(nameOrID)
	if err != nil {
		return sandbox.Runtime{}, sandbox.Rootfs{}, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.From(err)
	}
	if d.host {
		return c.provideHost(ctx, d, progress)
	}
	l, ok := c.layers.take(d.meta.ID)
	if !ok {
		l, err = c.share(ctx, d.meta.ID, progress, func(ctx context.Context, say func(string)) (Layer, error) {
			return c.make(ctx, d, say)
		})
		if err != nil {
			return sandbox.Runtime{}, sandbox.Rootfs{}, fault.From(err).About("runtime")
		}
	}
	rt := d.meta
	rt.Ready, rt.Source, rt.Digest = true, l.Source, l.Digest
	return rt, driver.Rootfs{Layers: []string{l.Path}, Digest: l.Digest}, nil
}

// make makes the layer of a runtime. It is called once at a time per runtime
// in this process; the lock file keeps other processes out.
func (c *Catalog) make(ctx context.Context, d definition, say func(string)) (Layer, error) {
	unlock, err := c.layers.lock(ctx, d.meta.ID, func() {
		say("another process is making " + d.meta.Name + "; waiting for it")
	})
	if err != nil {
		return Layer{}, err
	}
	defer unlock()
	if l, ok := c.layers.current(d.meta.ID); ok {
		return l, nil
	}
	say(d.meta.Name + " is not on this machine yet; making it once")
	began := c.cfg.Now()
	b, err := c.layers.begin()
	if err != nil {
		return Layer{}, c.hostTrouble(ctx, err, d)
	}
	defer b.discard()
	info, err := c.fill(ctx, d, b, say)
	if err != nil {
		return Layer{}, err
	}
	if err := finishRoot(b.root); err != nil {
		return Layer{}, c.hostTrouble(ctx, err, d)
	}
	info.Runtime, info.MadeAt = d.meta.ID, c.cfg.Now().UTC()
	l, err := b.commit(ctx, info, true)
	if err != nil {
		return Layer{}, c.hostTrouble(ctx, err, d)
	}
	if err := c.layers.point(d.meta.ID, reference{Digest: l.Digest}); err != nil {
		return Layer{}, c.hostTrouble(ctx, err, d)
	}
	c.cfg.Log.Info("runtime made", "runtime", d.meta.Name, "digest", l.Digest, "source", l.Source, "bytes", l.Size, "took", c.cfg.Now().Sub(began))
	say(readyLine(d.meta.Name, l, c.cfg.Now().Sub(began)))
	return l, nil
}

// hostTrouble turns a failure of this host into an error for a person. A
// fault passes unchanged.
func (c *Catalog) hostTrouble(ctx context.Context, err error, d definition) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	if diskFull(err) {
		return c.diskFullError(err, d)
	}
	return fault.Wrap(err, fault.Internal, "%s could not be written to %s; the log has the cause", d.meta.Name, c.cfg.Dir)
}

func (c *Catalog) diskFullError(err error, d definition) error {
	return fault.Wrap(err, fault.Exhausted, "the disk is full: %s needs about 500 MiB free in %s while it is made", d.meta.Name, c.cfg.Dir)
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
