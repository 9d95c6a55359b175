package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func notFound(id string) error {
	return fault.New(fault.NotFound, "there is no sandbox %.64q", id).About("sandbox")
}

// observed is a container as the engine describes it; without a State it is
// what is left of a sandbox that has no container.
type observed struct {
	container.InspectResponse
}

// inspect looks at a sandbox's container.
func (d *Driver) inspect(ctx context.Context, id string) (observed, error) {
	if !driver.ValidID(id) {
		return observed{}, notFound(id)
	}
	r, err := d.cli.ContainerInspect(ctx, d.container(id), client.ContainerInspectOptions{})
	switch {
	case err == nil && r.Container.State != nil && r.Container.Config != nil:
		return observed{r.Container}, nil
	case err != nil && !errdefs.IsNotFound(err):
		return observed{}, d.engineError(ctx, err, "look at the sandbox")
	}
	if _, err := os.Stat(d.record(id)); errors.Is(err, fs.ErrNotExist) || d.isHalfway(id) {
		return observed{}, notFound(id)
	}
	return observed{}, nil
}

func (o observed) state() driver.State {
	if o.State == nil {
		return driver.Broken
	}
	switch o.State.Status {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return driver.Running
	case container.StateCreated:
		return driver.Created
	case container.StateExited, container.StateRemoving:
		return driver.Stopped
	case container.StateDead: // could not be removed
	}
	return driver.Broken
}

// status is what a container says of its sandbox. One that was restored has a
// new container; that it was started before is in the record.
func (d *Driver) status(id string, o observed) driver.Status {
	s := driver.Status{ID: id, State: o.state()}
	if o.Config != nil {
		// What the driver wrote itself; an empty map says enough if it did not.
		_ = json.Unmarshal([]byte(o.Config.Labels[labelLabels]), &s.Labels)
	}
	switch s.State {
	case driver.Stopped:
		s.Exit = o.exit()
	case driver.Created:
		if r, _ := d.readRecord(id); r.Exit != nil {
			s.State, s.Exit = driver.Stopped, *r.Exit
		}
	case driver.Running, driver.Broken:
	}
	return s
}

func (o observed) exit() driver.Exit {
	switch {
	case o.State.OOMKilled:
		reason := "out of memory"
		if o.HostConfig != nil && o.HostConfig.Memory > 0 {
			reason += fmt.Sprintf(" (limit %s)", size(o.HostConfig.Memory))
		}
		return driver.Exit{OOM: true, Reason: reason}
	case o.State.Error != "":
		return driver.Exit{Reason: oneLine(o.State.Error)}
	case o.State.ExitCode == 0:
		return driver.Exit{Reason: "stopped"}
	case o.State.ExitCode == 128+9:
		return driver.Exit{Reason: "killed"}
	}
	return driver.Exit{Reason: fmt.Sprintf("its first process ended with status %d", o.State.ExitCode)}
}

// size writes a number of bytes the way limits are written.
func size(n int64) string {
	for _, u := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return fmt.Sprint(n)
}

// oneLine makes the engine's words fit a status.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id string) (driver.Status, error) {
	o, err := d.inspect(ctx, id)
	if err != nil {
		return driver.Status{}, err
	}
	return d.status(id, o), nil
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Status, error) {
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.owned("")})
	if err != nil {
		return nil, d.engineError(ctx, err, "list containers")
	}
	records, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the state folder cannot be read")
	}
	ids := make(map[string]bool)
	for _, c := range list.Items {
		ids[c.Labels[labelID]] = true
	}
	for _, r := range records {
		ids[r.Name()] = true
	}
	var all []driver.Status
	for id := range ids {
		// The list does not say how a container ended.
		s, err := d.Inspect(ctx, id)
		switch {
		case fault.Is(err, fault.NotFound): // gone meanwhile, or not there yet
		case err != nil:
			return nil, err
		default:
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b driver.Status) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}
