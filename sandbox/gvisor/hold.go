package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// releaseTimeout bounds the end of a hold, which has to come whatever became of
// the operation that asked for it.
const releaseTimeout = 10 * time.Second

// hold holds all tasks of a running sandbox still until release is called,
// which may be called more than once. The caller has locked the sandbox.
//
// gVisor counts holds and dies of a release too many, and nobody releases what
// a server held that was killed. So a file says that a hold is under way, and
// whoever finds it without one calls recoverHold.
func (d *Driver) hold(ctx context.Context, b box) (release func() error, err error) {
	if err := d.recoverHold(ctx, b); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.held(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("hold the sandbox still: %w", err)
	}
	released := false
	release = func() error {
		if released {
			return nil
		}
		released = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := d.call(ctx, b.id(), boot.ContMgrResume, nil, nil); err != nil && !errors.Is(err, errDown) {
			return fmt.Errorf("let the sandbox go on: %w", err)
		}
		return b.forgetHold()
	}
	// Whether a call that is given up reaches the sentry nobody knows, so this
	// one is not.
	pause, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err = d.call(pause, b.id(), boot.ContMgrPause, nil, nil)
	switch {
	case errors.Is(err, errDown):
		return nil, errors.Join(err, b.forgetHold())
	case err != nil:
		return nil, fmt.Errorf("hold the sandbox still: %w", err) // to be recovered from
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), release())
	}
	return release, nil
}

// still runs f while a sandbox is held still.
func (d *Driver) still(ctx context.Context, b box, f func() error) error {
	release, err := d.hold(ctx, b)
	if err != nil {
		return err
	}
	begin := d.now()
	err = errors.Join(f(), release())
	d.log.Debug("held a sandbox still", "sandbox", b.id(), "took", d.now().Sub(begin))
	return err
}

func (b box) forgetHold() error {
	if err := os.Remove(b.held()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isHeld reports whether a hold is under way or was never ended.
func (b box) isHeld() bool {
	_, err := os.Lstat(b.held())
	return err == nil
}

// endLostHold recovers a sandbox from the hold of a server that was killed.
// While somebody else has the sandbox locked the hold is theirs to end.
func (d *Driver) endLostHold(ctx context.Context, b box) error {
	if !b.isHeld() {
		return nil
	}
	f, err := os.OpenFile(b.lock(), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return fmt.Errorf("lock sandbox: %w", err)
	}
	return d.recoverHold(ctx, b)
}

// endLostHolds does so in the background: a server that comes up lists its
// sandboxes, and what runs in them should not wait for somebody to connect.
func (d *Driver) endLostHolds(s driver.Status) {
	b := d.box(s.ID)
	if s.State != driver.Running || !b.isHeld() {
		return
	}
	d.background(func() {
		ctx, cancel := context.WithTimeout(d.ctx, 2*releaseTimeout)
		defer cancel()
		if err := d.endLostHold(ctx, b); err != nil {
			d.log.Error("end the hold of a server that was killed", "sandbox", s.ID, "error", err)
		}
	})
}

// recoverHold makes sure that nobody holds a sandbox which the caller has
// locked: it goes on, or, when a suspend had come so far as to end it, it is
// suspended. The file is written before a hold and removed after it, so it does
// not say whether the sandbox is held.
func (d *Driver) recoverHold(ctx context.Context, b box) error {
	if !b.isHeld() {
		return nil
	}
	id := b.id()
	if !d.running(ctx, id) {
		return b.forgetHold()
	}
	if l := b.readLife(); l.Ending && b.hasImage() {
		return d.finishSuspend(ctx, b, l)
	}
	// A memory image that was just made is worth nothing once it goes on.
	if err := b.discardImage(); err != nil {
		return err
	}
	still, err := d.isStill(ctx, id)
	if err == nil && still {
		d.log.Warn("a sandbox was left held still; let it go on", "sandbox", id)
		err = d.call(ctx, id, boot.ContMgrResume, nil, nil)
	}
	if err != nil && !errors.Is(err, errDown) {
		return fmt.Errorf("let the sandbox go on: %w", err)
	}
	return b.forgetHold()
}

// isStill reports whether a sandbox is held. gVisor does not tell, but shows
// what its own threads do: each task has one, and all of them wait for the end
// of a stop. Without a hold that is never so, as PID 1 cannot be stopped.
func (d *Driver) isStill(ctx context.Context, id string) (bool, error) {
	var stacks string
	if err := d.call(ctx, id, boot.DebugStacks, nil, &stacks); err != nil {
		return false, err
	}
	tasks, stopped := 0, 0
	for thread := range strings.SplitSeq(stacks, "\n\n") {
		if !strings.Contains(thread, "kernel.(*Task).run(") {
			continue
		}
		tasks++
		if strings.Contains(thread, "kernel.(*Task).doStop(") {
			stopped++
		}
	}
	if tasks == 0 {
		return false, errors.New("the tasks of the sandbox do not show")
	}
	return stopped == tasks, nil
}
