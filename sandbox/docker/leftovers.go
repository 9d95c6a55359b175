package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Leftovers implements driver.Cleaner. It finds volumes and single-use images
// of sandboxes that no longer exist, images and guest volumes whose source is
// gone from this machine, images that lost their name to a later import, and
// what a restore that was cut short has left.
func (d *Driver) Leftovers(ctx context.Context, fix bool) ([]string, error) {
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	alive := make(map[string]bool)
	for _, s := range list {
		alive[s.ID] = true
	}
	var lines []string
	// Containers first: they hold the others.
	for _, find := range []func(context.Context, map[string]bool, bool) ([]string, error){d.leftContainers, d.leftVolumes, d.leftRestored, d.leftImages} {
		found, err := find(ctx, alive, fix)
		lines = append(lines, found...)
		if err != nil {
			return lines, err
		}
	}
	return lines, nil
}

// Purge removes everything this state folder has in the engine: sandboxes, and
// the images and guest volumes that are kept for the next one. It is for who
// gives the folder up.
func (d *Driver) Purge(ctx context.Context) error {
	list, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if err := d.Remove(ctx, s.ID); err != nil {
			return err
		}
	}
	if _, err := d.leftContainers(ctx, nil, true); err != nil {
		return err
	}
	volumes, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: d.owned("")})
	if err != nil {
		return d.engineError(ctx, err, "list volumes")
	}
	for _, v := range volumes.Items {
		if _, err := d.cli.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true}); err != nil {
			return d.engineError(ctx, err, "remove a volume")
		}
	}
	images, err := d.ownImages(ctx)
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := d.removeImage(ctx, i.ID); err != nil {
			return err
		}
	}
	if _, err := d.leftRestored(ctx, nil, true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.volumes)
	return nil
}

// leftContainers finds carriers of guest programs that a crash left, and
// containers of sandboxes that are now others.
func (d *Driver) leftContainers(ctx context.Context, _ map[string]bool, fix bool) ([]string, error) {
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.owned("")})
	if err != nil {
		return nil, d.engineError(ctx, err, "list containers")
	}
	var lines []string
	for _, c := range list.Items {
		id := c.Labels[labelID]
		switch {
		case c.Labels[labelGuest] != "":
			lines = append(lines, "docker container "+c.ID+" that carried the guest")
		case id != "" && !d.isHalfway(id) && !slices.Contains(c.Names, "/"+d.container(id)):
			lines = append(lines, "docker container "+c.ID+" of sandbox "+id+" before or after a restore")
		default:
			continue
		}
		if !fix {
			continue
		}
		if _, err := d.cli.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			return lines, d.engineError(ctx, err, "remove a container")
		}
	}
	return lines, nil
}

func (d *Driver) leftVolumes(ctx context.Context, alive map[string]bool, fix bool) ([]string, error) {
	list, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: d.owned("").Add("dangling", "true")})
	if err != nil {
		return nil, d.engineError(ctx, err, "list volumes")
	}
	var lines []string
	for _, v := range list.Items {
		id, why := v.Labels[labelID], "of a sandbox that is gone"
		if program, ok := v.Labels[labelGuest]; ok {
			if !gone(decodePaths(program)) {
				continue
			}
			why = "of a guest program that is gone"
		}
		if r, _ := d.readRecord(id); alive[id] && id != "" && !d.ofGeneration(v.Name, id, r.Generation) {
			why = "of sandbox " + id + " before or after a restore"
		} else if alive[id] {
			continue
		}
		if d.isHalfway(id) {
			continue
		}
		lines = append(lines, "docker volume "+v.Name+" "+why)
		if !fix {
			continue
		}
		if _, err := d.cli.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true}); err != nil {
			return lines, d.engineError(ctx, err, "remove a volume")
		}
	}
	return lines, nil
}

func (d *Driver) leftImages(ctx context.Context, alive map[string]bool, fix bool) ([]string, error) {
	list, err := d.ownImages(ctx)
	if err != nil {
		return nil, err
	}
	used, err := d.usedImages(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, i := range list {
		id, once := i.Labels[labelID]
		stack := i.Labels[labelSaved]
		once = once && driver.ValidID(id)
		var why string
		switch {
		case used[i.ID] || d.isHalfway(id):
			used[i.ParentID] = true // the engine keeps what an image was committed on
			continue
		case once && !alive[id]:
			why = "of a sandbox that is gone"
		case len(i.RepoTags) == 0 || i.RepoTags[0] == "<none>:<none>":
			why = "without a name"
		case stack != "" && gone(decodePaths(stack)):
			why = "of saved layers that are gone"
		case !once && stack == "" && gone(decodePaths(i.Labels[labelLayers])):
			why = "of layers that are gone"
		default:
			used[i.ParentID] = true
			continue
		}
		lines = append(lines, "docker image "+i.ID+" "+why)
		if fix {
			if err := d.removeImage(ctx, i.ID); err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}

// leftRestored finds layers that sandboxes were restored from which are gone,
// or others by now.
func (d *Driver) leftRestored(_ context.Context, alive map[string]bool, fix bool) ([]string, error) {
	dirs, err := d.restoredOf("")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, dir := range dirs {
		id, _, _ := strings.Cut(filepath.Base(dir), ".")
		if r, _ := d.readRecord(id); d.isHalfway(id) || alive[id] && dir == d.restored(id, r.Generation) {
			continue
		}
		lines = append(lines, "restored layer "+dir)
		if fix {
			if err := os.RemoveAll(dir); err != nil {
				return lines, diskFault(err, "the state folder cannot be written")
			}
		}
	}
	return lines, nil
}

// ownImages returns the images of this folder, those that were committed on
// others before these.
func (d *Driver) ownImages(ctx context.Context) ([]image.Summary, error) {
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{Filters: d.owned("")})
	if err != nil {
		return nil, d.engineError(ctx, err, "list images")
	}
	parents := make(map[string]string)
	for _, i := range list.Items {
		parents[i.ID] = i.ParentID
	}
	depth := func(id string) (n int) {
		for ; n < len(parents) && parents[id] != ""; n++ {
			id = parents[id]
		}
		return n
	}
	slices.SortStableFunc(list.Items, func(a, b image.Summary) int { return depth(b.ID) - depth(a.ID) })
	return list.Items, nil
}

// usedImages returns the images of this folder's containers.
func (d *Driver) usedImages(ctx context.Context) (map[string]bool, error) {
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.owned("")})
	if err != nil {
		return nil, d.engineError(ctx, err, "list containers")
	}
	used := make(map[string]bool)
	for _, c := range list.Items {
		used[c.ImageID] = true
	}
	return used, nil
}

// gone reports whether one of the directories no longer exists.
func gone(layers []string) bool {
	for _, dir := range layers {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
