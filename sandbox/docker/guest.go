package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// guestMounts show the guest program in a container. An engine on this machine
// shows the file itself. Another one gets a copy of it, in a volume that is
// named after its content and shown read-only to every sandbox that runs it.
//
// Either way the directory is a mount as well: root of a sandbox can move a
// directory that has a mount in it, and then put a program of its own, or a
// link to the engine's own (CVE-2019-5736), where Dial runs the guest.
func (d *Driver) guestMounts(ctx context.Context, image, program string) ([]mount.Mount, error) {
	info, err := d.knownInfo(ctx)
	if err != nil {
		return nil, err
	}
	dir := path.Dir(driver.GuestPath)
	if local, _ := d.isLocal(info); local {
		return []mount.Mount{
			{Type: mount.TypeTmpfs, Target: dir, ReadOnly: true, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 64 << 10, Mode: 0o755}},
			{Type: mount.TypeBind, Source: program, Target: driver.GuestPath, ReadOnly: true},
		}, nil
	}
	volume, err := d.guestVolume(ctx, image, program)
	return []mount.Mount{{
		Type: mount.TypeVolume, Source: volume, Target: dir, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}}, err
}

// guestVolume returns the volume that holds a guest program, and fills it if
// this process has not seen it whole before.
func (d *Driver) guestVolume(ctx context.Context, image, program string) (string, error) {
	unlock, err := d.guests.lock(ctx, program)
	if err != nil {
		return "", fault.From(err)
	}
	defer unlock()
	d.mu.Lock()
	name := d.volumes[program]
	d.mu.Unlock()
	if name != "" {
		return name, nil
	}
	f, err := os.Open(program)
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "the guest program %s cannot be read", program)
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "the guest program %s cannot be read", program)
	}
	name = fmt.Sprintf("sandgate-guest-%s-%s", d.state, hex.EncodeToString(hash.Sum(nil)[:12]))
	if err := d.fillGuest(ctx, name, image, program, f, size); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[program] = name
	return name, nil
}

// fillGuest copies the program into the volume, through a container that has
// it mounted and is never started. A program of the right size is whole: it is
// the last thing written, and its name says what it is.
func (d *Driver) fillGuest(ctx context.Context, name, image, program string, content io.Reader, size int64) error {
	labels := map[string]string{labelState: d.state, labelGuest: encodePaths([]string{program})}
	_, err := d.cli.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Driver: "local", Labels: labels})
	if err != nil {
		return d.engineError(ctx, err, "make a volume")
	}
	carrier := name + "-carrier"
	remove := func(ctx context.Context) error {
		_, err := d.cli.ContainerRemove(ctx, carrier, client.ContainerRemoveOptions{Force: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		return d.engineError(ctx, err, "remove a container")
	}
	if err := remove(ctx); err != nil { // of an attempt that a crash cut short
		return err
	}
	dir := path.Dir(driver.GuestPath)
	_, err = d.cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   carrier,
		Config: &container.Config{Image: image, Entrypoint: []string{driver.GuestPath}, Labels: labels},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts:      []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: dir, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}},
		},
	})
	if err != nil {
		return d.engineError(ctx, err, "make a container")
	}
	defer func() {
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		if err := remove(settle); err != nil {
			d.log.Error("a container that carried the guest is left over", "container", carrier, "error", err)
		}
	}()
	stat, err := d.cli.ContainerStatPath(ctx, carrier, client.ContainerStatPathOptions{Path: driver.GuestPath})
	if err == nil && stat.Stat.Size == size {
		return nil
	}
	return d.copyGuest(ctx, carrier, content, size)
}

func (d *Driver) copyGuest(ctx context.Context, carrier string, content io.Reader, size int64) error {
	pr, pw := io.Pipe()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		t := tar.NewWriter(pw)
		err := t.WriteHeader(&tar.Header{Name: path.Base(driver.GuestPath), Mode: 0o755, Size: size})
		if err == nil {
			_, err = io.Copy(t, content)
		}
		pw.CloseWithError(errors.Join(err, t.Close()))
	}()
	_, err := d.cli.CopyToContainer(ctx, carrier, client.CopyToContainerOptions{DestinationPath: path.Dir(driver.GuestPath), Content: pr})
	pr.CloseWithError(errors.New("the copy has ended"))
	<-wrote
	return d.engineError(ctx, err, "copy the guest")
}
