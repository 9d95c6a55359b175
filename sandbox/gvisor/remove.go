package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id string) error {
	if !driver.ValidID(id) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	h, err := d.lock(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	// Only of a sandbox that never ran, or that runs as it should, is it sure
	// that it has no process but the ones its state file names.
	l := h.readLife()
	search := l.Started && !d.running(ctx, id)
	if l.Started {
		l.Ending = true
		if err := writeJSON(h.life(), &l, false); err != nil {
			d.log.Debug("note the end of a sandbox", "sandbox", id, "error", err)
		}
	}
	if err := d.bury(ctx, id, search); err != nil {
		return d.failure(err, "removed", id)
	}
	if err := d.detach(ctx, h.box); err != nil {
		return d.failure(err, "removed", id)
	}
	if err := d.trash(h.box); err != nil {
		return d.failure(err, "removed", id)
	}
	d.disks.forget(id)
	d.removeParentCgroup()
	return nil
}

// trash deletes a sandbox's directory: in one step as far as its id is
// concerned. What a crash leaves of the rest is a leftover.
func (d *Driver) trash(b box) error {
	gone := filepath.Join(d.trashDir(), b.id()+"-"+strconv.FormatInt(d.now().UnixNano(), 36))
	if err := os.Rename(b.dir, gone); err != nil {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return os.RemoveAll(gone)
}
