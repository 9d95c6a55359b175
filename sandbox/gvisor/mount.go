package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// keepFile in /tmp stops gVisor from putting a tmpfs there, which it does when
// /tmp is empty: what is written to /tmp would be in memory, not on the disk
// that the disk limit counts, and gone after a stop.
const keepFile = "tmp/.keep"

// mount assembles the sandbox's filesystem in this process's own mount
// namespace.
//
// The contents of the layers and of the private layer come from sandboxes:
// every path inside them is resolved with os.Root, so that no symbolic link
// leads out, and mounted through a descriptor, so that nothing is resolved
// twice.
func (p *plan) mount() error {
	unix.Umask(0o022)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if p.Disk != "" {
		if err := mountDisk(p.Disk, p.Data); err != nil {
			return err
		}
	}
	var private *os.Root
	if p.Data != "" {
		if err := makePrivateLayer(p.Data, upperDir, "work"); err != nil {
			return err
		}
		var err error
		if private, err = os.OpenRoot(path.Join(p.Data, upperDir)); err != nil {
			return fmt.Errorf("open private layer: %w", err)
		}
		defer private.Close()
	}
	if err := p.mountRoot(); err != nil {
		return err
	}
	merged, err := os.OpenRoot(p.Rootfs)
	if err != nil {
		return fmt.Errorf("open root filesystem: %w", err)
	}
	defer merged.Close()

	// Parents first, so that a directory may be shown inside another one.
	dirs := slices.Clone(p.HostDirs)
	slices.SortFunc(dirs, func(a, b driver.HostDir) int { return strings.Compare(a.Target, b.Target) })
	for i, dir := range dirs {
		if err := p.mountHostDir(merged, private, dir, fmt.Sprintf("work-%d", i)); err != nil {
			return fmt.Errorf("show %s at %s: %w", dir.Source, dir.Target, err)
		}
	}
	if private != nil {
		return keepTmp(merged)
	}
	return nil
}

// mountRoot puts the layers, and the private layer over them, on p.Rootfs.
func (p *plan) mountRoot() error {
	o := overlay{readOnly: p.Data == ""}
	defer o.close()
	for _, layer := range p.Layers {
		if err := o.lower(layer); err != nil {
			return fmt.Errorf("open layer: %w", err)
		}
	}
	if !o.readOnly {
		if err := o.private(path.Join(p.Data, upperDir), path.Join(p.Data, "work")); err != nil {
			return err
		}
	}
	if err := o.mount(p.Rootfs); err != nil {
		return fmt.Errorf("mount root filesystem: %w", err)
	}
	return nil
}

// mountHostDir shows a host directory below the layers: what a layer holds at
// the target covers it, as with any lower layer, so that a snapshot of a
// sandbox on this host can be a layer of the next. overlayfs does not look
// into mounts below its layers, hence an overlay of its own. Its private layer
// is the target's directory in the sandbox's one, which keeps that a single
// tree; the kernel knows that the two overlap and only warns, and they meet at
// a mount point that hides one from the other.
func (p *plan) mountHostDir(merged, private *os.Root, dir driver.HostDir, work string) error {
	rel := strings.TrimPrefix(path.Clean(dir.Target), "/")
	o := overlay{readOnly: private == nil}
	defer o.close()
	seed, layers := p.Layers[0], p.Layers[1:]
	for _, layer := range layers {
		if err := o.lowerIn(layer, rel); err != nil {
			return err
		}
	}
	source, err := os.Open(dir.Source)
	if err != nil {
		return err
	}
	o.lowers = append(o.lowers, source)
	if p.covered(dir.Target) {
		// The mount points of the directories inside, where the host has none.
		if err := o.lowerIn(seed, rel); err != nil {
			return err
		}
	}
	if private != nil {
		if err := makePrivateDir(merged, private, rel, source); err != nil {
			return err
		}
		if o.upper, err = private.Open(rel); err != nil {
			return fmt.Errorf("open its private layer: %w", err)
		}
		if err := makePrivateLayer(p.Data, work); err != nil {
			return err
		}
		if o.work, err = os.Open(path.Join(p.Data, work)); err != nil {
			return err
		}
	}
	target, err := merged.Open(rel)
	if err != nil {
		return fmt.Errorf("open mount point: %w", err)
	}
	defer target.Close()
	return o.mount(fdPath(target))
}

// covered reports whether another host directory is shown inside target.
func (p *plan) covered(target string) bool {
	return slices.ContainsFunc(p.HostDirs, func(d driver.HostDir) bool {
		return d.Target != target && within(d.Target, target)
	})
}

// makePrivateLayer makes directories in the sandbox's data folder, which is
// ours: nothing of a sandbox is named there.
func makePrivateLayer(data string, names ...string) error {
	for _, name := range names {
		if err := os.Mkdir(path.Join(data, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make private layer: %w", err)
		}
	}
	return nil
}

// makePrivateDir makes rel in the private layer, with the mode and owner of
// the directory it will cover. It does so by a change to the merged tree, so
// that the directories on the way keep their attributes.
func makePrivateDir(merged, private *os.Root, rel string, like *os.File) error {
	if info, err := private.Lstat(rel); err == nil && info.IsDir() {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(like.Fd()), &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if err := merged.Chmod(rel, fs.FileMode(st.Mode&0o777)); err != nil {
		return fmt.Errorf("make its private layer: %w", err)
	}
	if err := merged.Lchown(rel, int(st.Uid), int(st.Gid)); err != nil {
		return fmt.Errorf("make its private layer: %w", err)
	}
	return nil
}

// keepTmp makes sure that /tmp is not empty. A sandbox that made something
// else of its /tmp is left alone.
func keepTmp(merged *os.Root) error {
	if _, err := merged.Lstat(keepFile); err == nil {
		return nil // to open it for writing would make it the sandbox's own
	}
	f, err := merged.OpenFile(keepFile, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil
	}
	return f.Close()
}

// within reports whether the clean path p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
