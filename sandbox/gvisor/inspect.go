package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Inspect implements driver.Driver. It takes no lock: a sandbox can be looked
// at while it starts or stops.
func (d *Driver) Inspect(ctx context.Context, id string) (driver.Status, error) {
	if !driver.ValidID(id) {
		return driver.Status{}, notFound(id)
	}
	if err := ctx.Err(); err != nil {
		return driver.Status{}, fault.From(err)
	}
	b := d.box(id)
	if _, err := os.Lstat(b.dir); errors.Is(err, fs.ErrNotExist) {
		return driver.Status{}, notFound(id)
	}
	status := driver.Status{ID: id, State: driver.Broken}
	r, err := b.readRecord()
	if err != nil {
		return status, nil
	}
	status.Labels = r.Spec.Labels
	l := b.readLife()
	switch {
	case d.running(ctx, id):
		status.State = driver.Running
	case !l.Started:
		status.State = driver.Created
	default:
		status.State = driver.Stopped
		if l.Exit == nil {
			// Nobody saw it end. Leave the writing to who holds the lock.
			exit := d.autopsy(r, l)
			l.Exit = &exit
		}
		status.Exit = *l.Exit
		status.Memory = b.hasImage()
	}
	return status, ctxFault(ctx)
}

func ctxFault(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	return nil
}

// running reports whether PID 1 was started and the sentry lives. The process
// id says nothing: until somebody waits for it a dead process has one, and
// after that another process may.
func (d *Driver) running(ctx context.Context, id string) bool {
	s, err := d.readState(id)
	// Connecting to a socket of this host takes no time. A caller who has given
	// up must not make a sandbox that runs look like one that does not.
	return err == nil && s.Status == "running" && d.listens(context.WithoutCancel(ctx), id)
}

// inspectRunning returns a State fault when the sandbox does not run.
func (d *Driver) inspectRunning(ctx context.Context, id string) (driver.Status, error) {
	s, err := d.Inspect(ctx, id)
	if err != nil {
		return s, err
	}
	if s.State != driver.Running {
		return s, notRunning(id)
	}
	return s, nil
}

func notRunning(id string) error {
	return fault.New(fault.State, "sandbox %s does not run", id).About("sandbox")
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Status, error) {
	entries, err := os.ReadDir(d.boxDir())
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the state directory %s cannot be read", d.dir)
	}
	var list []driver.Status
	for _, e := range entries {
		if !driver.ValidID(e.Name()) {
			continue // not ours to touch
		}
		s, err := d.Inspect(ctx, e.Name())
		switch {
		case fault.Is(err, fault.NotFound): // removed meanwhile
		case err != nil:
			return nil, err
		default:
			list = append(list, s)
			d.endLostHolds(s)
		}
	}
	slices.SortFunc(list, func(a, b driver.Status) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// Wait implements driver.Driver. It waits for the sentry's process, which
// works whoever started it.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Status, error) {
	for {
		p := d.sentryOf(id)
		s, err := d.Inspect(ctx, id)
		if err != nil || s.State != driver.Running {
			if p != nil {
				p.close()
			}
			return s, err
		}
		if p == nil {
			// Started between the two looks: look again.
			if err := pause(ctx); err != nil {
				return s, fault.From(err)
			}
			continue
		}
		err = p.wait(ctx)
		p.close()
		if err != nil {
			if ctx.Err() != nil {
				return s, fault.From(ctx.Err())
			}
			return s, fault.Wrap(err, fault.Internal, "sandbox %s cannot be waited for; the log has the cause", id).About("sandbox")
		}
	}
}

// pause waits a little.
func pause(ctx context.Context) error {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (d *Driver) sentryOf(id string) *process {
	if !driver.ValidID(id) {
		return nil
	}
	return d.sentry(id)
}
