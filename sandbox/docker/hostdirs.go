package docker

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A host directory is shown through three volumes: two empty ones, of which
// the engine makes and removes the directories as the root it is, and one that
// the engine mounts, while the sandbox runs, as an overlay of the host
// directory (which is only ever read) and the first of the two (which takes
// all changes); the second is overlayfs's scratch space.

//
// Saved layers lie between the two, taken apart (parts.go).

// hostDirMounts makes the volumes and returns the mounts of a container. The
// stack is what lies below the private layer, the topmost first.
func (d *Driver) hostDirMounts(ctx context.Context, id string, r record, stack []stacked) ([]mount.Mount, error) {
	var mounts []mount.Mount
	for i, dir := range r.Rootfs.HostDirs {
		upper, err := d.dataVolume(ctx, id, r, i, "upper")
		if err != nil {
			return nil, err
		}
		work, err := d.dataVolume(ctx, id, r, i, "work")
		if err != nil {
			return nil, err
		}
		how, err := attributes(dir, i, stack)
		if err != nil {
			return nil, err
		}
		if err := how.apply(dir, upper); err != nil {
			return nil, err
		}
		options := "lowerdir=" + lowerDirs(dir, i, stack) + ",upperdir=" + overlayPath(upper) + ",workdir=" + overlayPath(work)
		if !plainOverlays() { // saving reads the upper directory as it is
			options += ",redirect_dir=off,metacopy=off"
		}
		if len(options) > maxOptions {
			return nil, fault.New(fault.Unsupported, "docker cannot show the host directory %s under %d saved layers: their names are longer than the kernel takes", dir.Target, len(stack))
		}
		name := d.volumeName(id, r.Generation, i, "view")
		err = d.createVolume(ctx, id, name, map[string]string{"type": "overlay", "device": "overlay", "o": options})
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: dir.Target,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		})
	}
	return mounts, nil
}

// maxOptions is what the kernel takes as options of a mount: a page.
const maxOptions = 4095

// lowerDirs lists what lies below the changes to a host directory.
func lowerDirs(dir driver.HostDir, i int, stack []stacked) string {
	var lower []string
	for _, s := range stack {
		p := s.parts.In[i]
		if p.Tree {
			lower = append(lower, overlayPath(s.parts.tree(i)))
		}
		if p.Closed && len(lower) > 0 {
			return strings.Join(lower, ":")
		}
	}
	return strings.Join(append(lower, overlayPath(dir.Source)), ":")
}

func (d *Driver) volumeName(id string, generation, i int, part string) string {
	return fmt.Sprintf("sandgate-%s-%s%s-%d-%s", d.state, id, suffix(generation), i, part)
}

// dataVolume makes an empty volume and returns its directory on the host.
func (d *Driver) dataVolume(ctx context.Context, id string, r record, i int, part string) (string, error) {
	opts := map[string]string{}
	if r.DiskBytes > 0 {
		opts["size"] = strconv.FormatInt(r.DiskBytes, 10)
	}
	name := d.volumeName(id, r.Generation, i, part)
	if err := d.createVolume(ctx, id, name, opts); err != nil {
		return "", err
	}
	v, err := d.cli.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err != nil {
		return "", d.engineError(ctx, err, "look at a volume")
	}
	return v.Volume.Mountpoint, nil
}

func (d *Driver) createVolume(ctx context.Context, id, name string, opts map[string]string) error {
	_, err := d.cli.VolumeCreate(ctx, client.VolumeCreateOptions{
		Name: name, Driver: "local", DriverOpts: opts,
		Labels: map[string]string{labelState: d.state, labelID: id},
	})
	return d.engineError(ctx, err, "make a volume")
}

// removeVolumes removes the volumes of a sandbox that are unwanted.
func (d *Driver) removeVolumes(ctx context.Context, id string, unwanted func(name string) bool) error {
	list, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: d.owned(id)})
	if err != nil {
		return d.engineError(ctx, err, "list volumes")
	}
	for _, v := range list.Items {
		if !unwanted(v.Name) {
			continue
		}
		if _, err := d.cli.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true}); err != nil {
			return d.engineError(ctx, err, "remove a volume")
		}
	}
	return nil
}

// overlayPath quotes a path for the options of an overlay mount.
func overlayPath(path string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(path)
}

// attributes is how a target is before the sandbox changes it: as the topmost
// layer has it that says so, or as the host directory is.
func attributes(dir driver.HostDir, i int, stack []stacked) (ownership, error) {
	for _, s := range stack {
		if root := s.parts.In[i].Root; root != nil {
			return *root, nil
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(dir.Source, &st); err != nil {
		return ownership{}, fault.Wrap(err, fault.Invalid, "host directory %q cannot be read", dir.Source)
	}
	return ownershipOf(&st), nil
}

func ownershipOf(st *unix.Stat_t) ownership {
	return ownership{int(st.Uid), int(st.Gid), st.Mode & 0o7777}
}

// apply gives the upper directory owner and mode, because an overlay shows the
// upper one's. A fresh volume belongs to root with mode 0755, so for system
// directories there is nothing to do, and the server need not be root.
func (o ownership) apply(dir driver.HostDir, upper string) error {
	if o == (ownership{Mode: 0o755}) {
		return nil
	}
	err := os.Chown(upper, o.UID, o.GID)
	if err == nil {
		err = unix.Chmod(upper, o.Mode)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unsupported, "showing %s, which is not root's with mode 0755, takes a server that runs as root", dir.Source)
	}
	return nil
}
