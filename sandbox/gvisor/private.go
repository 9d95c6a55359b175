package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// private is the private layer of a host overlay, opened on the host.
type private struct {
	root  *os.File // data folder, or the root of the disk image's file system
	inner bool     // the latter
}

// openPrivate opens the private layer of a sandbox, whether it runs or not,
// under a lock on the sandbox. That of a limited disk is the root of a file
// system which is mounted only where the sandbox's processes see it. It is
// mounted once more, in no namespace at all: the kernel gives every mount of
// one device the same file system, so all see the same at once.
func (b box) openPrivate(r *record) (*private, error) {
	if r.Spec.Limits.DiskBytes == 0 {
		f, err := os.Open(b.data())
		if err != nil {
			return nil, fmt.Errorf("open private layer: %w", err)
		}
		return &private{root: f}, nil
	}
	return openDisk(b.disk())
}

func openDisk(image string) (*private, error) {
	loop, err := attachLoop(image)
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	context, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount disk image: %w", err)
	}
	defer unix.Close(context)
	err = unix.FsconfigSetString(context, "source", loop.Name())
	if err == nil {
		err = unix.FsconfigCreate(context)
	}
	if err != nil {
		return nil, fmt.Errorf("mount disk image: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOATIME|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount disk image: %w", err)
	}
	// A mount's descriptor only names it; this one can be read and synced.
	root, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	unix.Close(mount)
	if err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	return &private{root: os.NewFile(uintptr(root), "disk image"), inner: true}, nil
}

func (p *private) close() { p.root.Close() }

// path names something of the data folder. The name ends with the handle.
func (p *private) path(name string) string { return filepath.Join(fdPath(p.root), name) }

// upper names the private layer, which is made when the sandbox never ran.
func (p *private) upper() (string, error) {
	if err := unix.Mkdirat(int(p.root.Fd()), upperDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make private layer: %w", err)
	}
	return p.path(upperDir), nil
}

// sync makes what is in the private layer durable. The kernel can do that for
// a whole file system or one file at a time, and these are many.
func (p *private) sync() error {
	if err := unix.Syncfs(int(p.root.Fd())); err != nil {
		return fmt.Errorf("sync the private layer: %w", err)
	}
	return nil
}
