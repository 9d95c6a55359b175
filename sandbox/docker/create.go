package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Labels on what the driver makes.
const (
	labelState  = "sandgate.state"  // the state folder it belongs to
	labelID     = "sandgate.id"     // the sandbox
	labelLabels = "sandgate.labels" // driver.Spec.Labels, as JSON
	labelLayers = "sandgate.layers" // the directories an image was made from
	labelGuest  = "sandgate.guest"  // the program a volume holds
	labelSaved  = "sandgate.saved"  // the saved layers an image was made from
)

// nobody is the id in the labels of an image that a sandbox was committed to:
// an engine hands labels on, and can give them other values only.
const nobody = "-"

// settleTime bounds what has to be finished after the caller has given up.
const settleTime = time.Minute

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, s driver.Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := d.checkSupport(ctx, s); err != nil {
		return err
	}
	unlock, err := d.locks.lock(ctx, s.ID)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()

	d.setHalfway(s.ID, true)
	defer d.setHalfway(s.ID, false)
	r := record{Rootfs: s.Rootfs, Guest: s.Guest.Path, Network: s.Network, DiskBytes: s.Limits.DiskBytes}
	if err := d.claim(s.ID, r); err != nil {
		return err
	}
	if err := d.build(ctx, s, r); err != nil {
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		if rerr := d.removeParts(settle, s.ID); rerr != nil {
			d.log.Error("a sandbox that could not be made is not all gone", "sandbox", s.ID, "error", rerr)
		}
		return err
	}
	return nil
}

func (d *Driver) setHalfway(id string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on {
		d.halfway[id] = true
	} else {
		delete(d.halfway, id)
	}
}

func (d *Driver) isHalfway(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.halfway[id]
}

// owned filters for what belongs to a sandbox, or to any for an empty id.
func (d *Driver) owned(id string) client.Filters {
	f := make(client.Filters).Add("label", labelState+"="+d.state)
	if id != "" {
		f.Add("label", labelID+"="+id)
	}
	return f
}

// build makes image, volumes and container.
func (d *Driver) build(ctx context.Context, s driver.Spec, r record) error {
	labels, err := json.Marshal(s.Labels)
	if err != nil {
		return fmt.Errorf("write labels: %w", err)
	}
	hostname := s.Hostname
	if hostname == "" {
		hostname = s.ID
	}
	cfg := &container.Config{
		Hostname:   hostname,
		Entrypoint: []string{driver.GuestPath, "init"},
		Env:        s.Guest.Env,
		User:       "0:0", WorkingDir: "/", StopSignal: "SIGTERM",
		Labels: map[string]string{labelState: d.state, labelID: s.ID, labelLabels: string(labels)},
	}
	return d.makeContainer(ctx, s.ID, r, cfg, s.Limits)
}

// makeContainer makes the container of a record, and what it stands on.
func (d *Driver) makeContainer(ctx context.Context, id string, r record, cfg *container.Config, limits driver.Limits) error {
	image, stack, err := d.image(ctx, id, r)
	if err != nil {
		return err
	}
	cfg.Image = image
	host := hostConfig(d.affordable(limits))
	if r.DiskBytes > 0 {
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(r.DiskBytes, 10)}
	}
	if r.Network {
		if host.DNS, err = d.nameServers(); err != nil {
			return err
		}
	}
	program, err := d.guestMounts(ctx, image, r.Guest)
	if err != nil {
		return err
	}
	views, err := d.hostDirMounts(ctx, id, r, stack)
	if err != nil {
		return err
	}
	host.Mounts = append(views, program...)
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	// From here on it is a matter of milliseconds, and a request that is cut
	// off may or may not leave a container: it is not cut off.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	made, err := d.cli.ContainerCreate(settle, client.ContainerCreateOptions{Name: d.containerOf(id, r.Generation), Config: cfg, HostConfig: host})
	switch {
	case errdefs.IsConflict(err):
		return fault.Wrap(err, fault.Exists, "sandbox %s exists", id).About("sandbox")
	case err != nil:
		return d.engineError(settle, err, "make the container")
	}
	for _, w := range made.Warnings {
		d.log.Warn("the engine makes a sandbox with a warning", "sandbox", id, "warning", w)
	}
	return nil
}

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id string) error {
	if !driver.ValidID(id) {
		return nil
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	d.setHalfway(id, true)
	defer d.setHalfway(id, false)
	return d.removeParts(ctx, id)
}

// removeParts removes whatever there is of a sandbox, its record last, so that
// what is left of an attempt is found again.
func (d *Driver) removeParts(ctx context.Context, id string) error {
	d.cutStreams(id)
	d.dials.forget(id)
	if err := d.removeContainers(ctx, id, ""); err != nil {
		return err
	}
	if err := d.detach(ctx, id); err != nil {
		return err
	}
	if err := d.removeVolumes(ctx, id, func(string) bool { return true }); err != nil {
		return err
	}
	for _, ref := range []string{d.onceImage(id), d.onceImage(id) + savedSuffix} {
		if err := d.removeImage(ctx, ref); err != nil {
			return err
		}
	}
	if err := d.removeRestored(ctx, id, -1); err != nil {
		return err
	}
	if err := os.Remove(d.passingRecord(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Internal, "the state folder cannot be written")
	}
	if err := os.Remove(d.record(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Internal, "the state folder cannot be written")
	}
	return nil
}

// removeContainers removes the containers of a sandbox, but for the one that
// is to be kept, and images of saved layers that only they still held.
func (d *Driver) removeContainers(ctx context.Context, id, keep string) error {
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.owned(id)})
	if err != nil {
		return d.engineError(ctx, err, "list containers")
	}
	for _, c := range list.Items {
		if slices.Contains(c.Names, "/"+keep) {
			continue
		}
		if c.State == container.StatePaused { // see kill
			if err := d.unpause(ctx, c.ID, false); err != nil {
				return err
			}
		}
		_, err := d.cli.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsConflict(err) { // "removal is already in progress"
			err = d.awaitRemoved(ctx, c.ID)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return d.engineError(ctx, err, "remove the container")
		}
		if err := d.removeUnnamed(ctx, c.ImageID); err != nil {
			return err
		}
	}
	return nil
}

// awaitRemoved waits for a removal that somebody else began.
func (d *Driver) awaitRemoved(ctx context.Context, name string) error {
	w := d.cli.ContainerWait(ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	select {
	case <-w.Result:
		return nil
	case err := <-w.Error:
		return err
	}
}
