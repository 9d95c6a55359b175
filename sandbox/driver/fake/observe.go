package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id string) (driver.Status, error) {
	if err := d.host.enter(ctx, Inspect); err != nil {
		return driver.Status{}, err
	}
	b, err := d.lookup(id)
	if err != nil {
		return driver.Status{}, err
	}
	return b.status(), nil
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Status, error) {
	if err := d.host.enter(ctx, List); err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	var boxes []*box
	for k, b := range d.host.boxes {
		if k.state == d.cfg.State {
			boxes = append(boxes, b)
		}
	}
	d.host.mu.Unlock()
	all := make([]driver.Status, len(boxes))
	for i, b := range boxes {
		all[i] = b.status()
	}
	slices.SortFunc(all, func(a, b driver.Status) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Wait implements driver.Driver.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Status, error) {
	if err := d.host.enter(ctx, Wait); err != nil {
		return driver.Status{}, err
	}
	b, err := d.lookup(id)
	if err != nil {
		return driver.Status{}, err
	}
	if r := b.current(); r != nil {
		select {
		case <-r.over:
		case <-ctx.Done():
			return driver.Status{}, fault.From(ctx.Err())
		}
	}
	return b.status(), nil
}

// Usage implements driver.Stats with what Host.SetUsage said.
func (d *Driver) Usage(ctx context.Context, id string) (driver.Usage, error) {
	if err := d.host.enter(ctx, Use); err != nil {
		return driver.Usage{}, err
	}
	b, err := d.lookup(id)
	if err != nil {
		return driver.Usage{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return driver.Usage{}, fault.New(fault.State, "sandbox %s does not run", id).About("sandbox")
	}
	return b.usage, nil
}
