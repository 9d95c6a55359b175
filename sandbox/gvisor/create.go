package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// minDisk is the smallest disk that is worth its file system.
const minDisk = 8 << 20

// Create implements driver.Driver. It writes files and nothing else, so a
// crash in the middle leaves a directory without a record: a Broken sandbox.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if n := spec.Limits.DiskBytes; n > 0 && n < minDisk {
		return fault.InvalidField(driver.FeatureDiskLimit, "must be at least %s", size(minDisk))
	}
	h := d.host()
	if err := h.checkLimits(spec); err != nil {
		return err
	}
	if n := d.probeNetwork(h); spec.Network && !n.OK {
		return fault.New(fault.Unsupported, "a sandbox with a network cannot be made here: %s", n.Reason)
	}
	for _, dir := range spec.Rootfs.Saved {
		if err := checkSaved(dir, h.storage); err != nil {
			return err
		}
	}
	unlock, err := d.locks.lock(ctx, spec.ID)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()

	b := d.box(spec.ID)
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.New(fault.Exists, "sandbox %s exists", spec.ID).About("sandbox")
		}
		return d.failure(err, "created", spec.ID)
	}
	err = d.fill(ctx, b, &record{Spec: spec, Storage: h.storage, Created: d.now()})
	if err == nil {
		return nil
	}
	if rmErr := os.RemoveAll(b.dir); rmErr != nil {
		d.log.Warn("remove a half-made sandbox", "sandbox", spec.ID, "error", rmErr)
	}
	return d.failure(err, "created", spec.ID)
}

// fill makes everything of a sandbox in its new directory, the record last.
func (d *Driver) fill(ctx context.Context, b box, r *record) error {
	lock, err := os.OpenFile(b.lock(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock sandbox: %w", err)
	}
	dirs := []string{b.bundle(), b.rootfs(), b.data()}
	if r.Storage == sentryFile {
		dirs = append(dirs, b.filestore())
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := b.makeSeed(r.Spec, d.resolvConf(r.Spec)); err != nil {
		return fmt.Errorf("make seed layer: %w", err)
	}
	if r.Storage == sentryFile && len(r.Spec.Rootfs.Saved) > 0 {
		if err := b.useSaved(ctx, r.Spec.Rootfs.Saved); err != nil {
			return err
		}
	}
	if r.Spec.Limits.DiskBytes > 0 && r.Storage == hostOverlay {
		if err := makeDisk(ctx, b.disk(), r.Spec.Limits.DiskBytes); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return writeJSON(b.record(), r, true)
}

// makeSeed makes the topmost read-only layer: the files that differ between
// sandboxes and the mount points that every sandbox has. As a layer of its own
// it needs no writing into trees that come from images or sandboxes, and does
// not show up as a change made by the sandbox.
func (b box) makeSeed(spec driver.Spec, resolvConf string) error {
	hostname := spec.Hostname
	if hostname == "" {
		hostname = spec.ID
	}
	dirs := []string{"proc", "sys", "dev", "tmp", "etc", filepath.Dir(driver.GuestPath)}
	for _, dir := range spec.Rootfs.HostDirs {
		dirs = append(dirs, dir.Target)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(b.seed(), dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/hostname": hostname + "\n",
		"etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"127.0.1.1\t" + hostname + "\n",
		"etc/resolv.conf": resolvConf,
		driver.GuestPath:  "", // the mount point
		keepFile:          "",
	} {
		if err := os.WriteFile(filepath.Join(b.seed(), name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Chmod(filepath.Join(b.seed(), "tmp"), 0o777|fs.ModeSticky),
		os.Chmod(b.seed(), 0o755),
	)
}
