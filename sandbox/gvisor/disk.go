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

// attachLoop returns the loop device that image is bound to, or binds it to a
// free one: two devices on one image would be two file systems that destroy
// each other. That somebody binds it at the same time a lock on the sandbox
// prevents.
func attachLoop(image string) (*os.File, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	defer backing.Close()
	if loop, err := findLoop(backing); loop != nil || err != nil {
		return loop, err
	}
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

// findLoop returns the loop device that a file is bound to, or nil. While it is
// open the device stays bound.
func findLoop(backing *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(backing.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat disk image: %w", err)
	}
	bound, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	for _, file := range bound {
		name, err := os.ReadFile(file)
		if err != nil || ending(strings.TrimSpace(string(name))) != ending(backing.Name()) {
			continue
		}
		loop, err := os.OpenFile("/dev/"+strings.Split(file, "/")[3], os.O_RDWR, 0)
		if err != nil {
			continue // of another owner, or gone
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev {
			return loop, nil
		}
		loop.Close()
	}
	return nil, nil
}

// ending is the last two parts of a path, which for a disk image begin with the
// id of the sandbox. How the rest reads depends on whose mounts it is read in.
func ending(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
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
