package docker

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A host directory is shown through three volumes: two empty ones, of which
// the engine makes and removes the directories as the root it is, and one that
// the engine mounts, while the sandbox runs, as an overlay of the host
// directory (which is only ever read) and the first of the two (which takes
// all changes); the second is overlayfs's scratch space.

// hostDirMounts makes the volumes and returns the mounts of a container.
func (d *Driver) hostDirMounts(ctx context.Context, s driver.Spec) ([]mount.Mount, error) {
	var mounts []mount.Mount
	for i, dir := range s.Rootfs.HostDirs {
		upper, err := d.dataVolume(ctx, s, i, "upper")
		if err != nil {
			return nil, err
		}
		work, err := d.dataVolume(ctx, s, i, "work")
		if err != nil {
			return nil, err
		}
		if err := copyAttributes(dir.Source, upper); err != nil {
			return nil, err
		}
		name := d.volumeName(s.ID, i, "view")
		err = d.createVolume(ctx, s.ID, name, map[string]string{
			"type": "overlay", "device": "overlay",
			"o": "lowerdir=" + overlayPath(dir.Source) + ",upperdir=" + overlayPath(upper) + ",workdir=" + overlayPath(work),
		})
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

func (d *Driver) volumeName(id string, i int, part string) string {
	return fmt.Sprintf("sandgate-%s-%s-%d-%s", d.state, id, i, part)
}

// dataVolume makes an empty volume and returns its directory on the host.
func (d *Driver) dataVolume(ctx context.Context, s driver.Spec, i int, part string) (string, error) {
	opts := map[string]string{}
	if s.Limits.DiskBytes > 0 {
		opts["size"] = strconv.FormatInt(s.Limits.DiskBytes, 10)
	}
	name := d.volumeName(s.ID, i, part)
	if err := d.createVolume(ctx, s.ID, name, opts); err != nil {
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

// removeVolumes removes every volume of a sandbox.
func (d *Driver) removeVolumes(ctx context.Context, id string) error {
	list, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: d.owned(id)})
	if err != nil {
		return d.engineError(ctx, err, "list volumes")
	}
	for _, v := range list.Items {
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

// copyAttributes gives the upper directory the owner and mode of the host
// directory, because an overlay shows the upper one's. A fresh volume belongs
// to root with mode 0755, so for system directories there is nothing to do,
// and the server need not be root.
func copyAttributes(source, upper string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "host directory %q cannot be read", source)
	}
	st := info.Sys().(*syscall.Stat_t)
	const bits = os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky
	if st.Uid == 0 && st.Gid == 0 && info.Mode()&bits == 0o755 {
		return nil
	}
	if err = os.Chown(upper, int(st.Uid), int(st.Gid)); err == nil {
		err = os.Chmod(upper, info.Mode()&bits)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unsupported, "showing %s, which is not root's with mode 0755, takes a server that runs as root", source)
	}
	return nil
}
