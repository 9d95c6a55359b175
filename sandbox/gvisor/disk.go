package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountDisk mounts an ext4 image on dir. The loop device frees itself when the
// mount is gone, whoever unmounts it or however the namespace ends.
func mountDisk(image, dir string) error {
	loop, err := attachLoop(image)
	if err != nil {
		return err
	}
	// The mount holds the device from here on.
	defer loop.Close()
	if err := unix.Mount(loop.Name(), dir, "ext4", unix.MS_NOATIME|unix.MS_NODEV, "discard"); err != nil {
		return fmt.Errorf("mount disk image: %w", err)
	}
	return nil
}

// attachLoop binds image to a free loop device.
func attachLoop(image string) (*os.File, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop control: %w", err)
	}
	defer control.Close()

	// Another process may take the device between asking for a free one and
	// configuring it; then the next one is asked for.
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach disk image: %w", err)
		}
	}
	return nil, errors.New("attach disk image: no loop device stayed free")
}

// makeDisk makes a sparse file with an empty ext4 file system.
func makeDisk(ctx context.Context, image string, bytes int64) error {
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(bytes); err != nil {
		return fmt.Errorf("make disk image: %w", err)
	}
	program, err := findMkfs()
	if err != nil {
		return err
	}
	// No reserved blocks: all of the disk is the sandbox's. The tables are
	// written when they are needed.
	mkfs := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-i", "8192",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", image, strconv.FormatInt(bytes>>10, 10)+"k")
	mkfs.Env = []string{"PATH=" + systemPath}
	if out, err := mkfs.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("make disk image: %w: %s", err, lastLine(out))
	}
	return nil
}

// findMkfs looks where system programs are: the path of a plain user, or of
// root by way of su, often lacks it.
func findMkfs() (string, error) {
	for dir := range strings.SplitSeq(systemPath, ":") {
		if path, err := exec.LookPath(filepath.Join(dir, "mkfs.ext4")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("mkfs.ext4 is missing")
}
