package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// deathTimeout bounds the waiting for processes that were killed.
const deathTimeout = 30 * time.Second

// Stop implements driver.Driver.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	h, err := d.lock(ctx, id)
	if err != nil {
		return err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return broken(err, id)
	}
	l := h.readLife()
	if !d.running(ctx, id) && h.hasImage() {
		if err := h.discardImage(); err != nil {
			return d.failure(err, "stopped", id)
		}
		l.Exit = &driver.Exit{Reason: "stopped"}
		if err := writeJSON(h.life(), &l, false); err != nil {
			return d.failure(err, "stopped", id)
		}
	}
	if d.running(ctx, id) {
		if err := h.discardImage(); err != nil { // a stop keeps no memory
			return d.failure(err, "stopped", id)
		}
		if err := d.recoverHold(ctx, h.box); err != nil {
			// A sandbox that does not go on can still be ended.
			d.log.Error("end the hold of a server that was killed", "sandbox", id, "error", err)
		}
		// Said before it is so: who waits for the end asks for its reason at
		// that moment.
		l.Ending = true
		if err := writeJSON(h.life(), &l, false); err != nil {
			return d.failure(err, "stopped", id)
		}
		if err := d.end(ctx, h.box, r, grace); err != nil {
			l.Ending = false
			err = errors.Join(err, writeJSON(h.life(), &l, false))
			if !errors.Is(err, errDown) { // else it was faster, and nothing was saved
				return d.failure(err, "stopped", id)
			}
		}
	}
	return d.failure(d.settle(ctx, h.box, r, &l), "stopped", id)
}

// end ends a running sandbox, keeping its files. The error is errDown when it
// ended before they could be saved.
func (d *Driver) end(ctx context.Context, b box, r *record, grace time.Duration) error {
	id := b.id()
	p := d.sentry(id)
	if p == nil {
		return nil // just ended
	}
	defer p.close()
	polite, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if r.Storage == sentryFile {
		if grace > 0 {
			if err := d.askProcesses(polite, id); ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				d.log.Debug("ask the processes to end", "sandbox", id, "error", err)
			}
		}
		if err := d.saveFiles(ctx, b); err != nil {
			if _, ok := errors.AsType[refusal](err); ok && endsSoon(ctx, p) {
				return errDown // PID 1 had ended already, and the rest follows
			}
			return err
		}
	}
	if grace > 0 && polite.Err() == nil {
		signal := boot.SignalArgs{CID: id, Signo: int32(unix.SIGTERM), Mode: boot.DeliverToProcess}
		if err := d.call(polite, id, boot.ContMgrSignal, &signal, nil); err != nil {
			d.log.Debug("ask PID 1 to end", "sandbox", id, "error", err)
		}
		err := p.wait(polite)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
	}
	if err := p.kill(); err != nil {
		return err
	}
	return waitDead(ctx, p)
}

// endsSoon reports whether a process is about to end by itself.
func endsSoon(ctx context.Context, p *process) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.wait(ctx) == nil
}

func waitDead(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deathTimeout, fmt.Errorf("process %d does not die", p.pid))
	defer cancel()
	err := p.wait(ctx)
	if err == nil {
		return nil
	}
	if ended := context.Cause(ctx); ended != nil {
		err = ended
	}
	return fmt.Errorf("wait for the end of a process: %w", err)
}

// bury removes what a sandbox's life leaves on the host outside its directory:
// its processes, which are killed, runsc's state, and cgroups. With search the
// processes are looked for on all of the host, for when no state file names
// them.
func (d *Driver) bury(ctx context.Context, id string, search bool) error {
	var dying []*process
	if s, err := d.readState(id); err == nil {
		for _, pid := range []int{s.Sandbox.PID, s.Gofer} {
			if p := d.open(id, pid); p != nil {
				dying = append(dying, p)
			}
		}
	}
	if search {
		found, err := d.processes(id)
		if err != nil {
			return err
		}
		dying = append(dying, found[id]...)
	}
	var errs []error
	for _, p := range dying {
		errs = append(errs, p.kill())
	}
	for _, p := range dying {
		errs = append(errs, waitDead(ctx, p))
		p.close()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, name := range []string{d.controlSocket(id), d.stateFile(id), d.stateLock(id)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.host().remove(ctx, d.cgroupOf(id))
}
