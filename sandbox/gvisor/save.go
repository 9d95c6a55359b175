package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// The storage sentryFile loses its files with the sentry, and the sentry ends
// with PID 1. So a stop asks all processes but PID 1 to end, saves the files
// with the world held still, and only then asks PID 1.

// askProcesses sends SIGTERM to every process but PID 1 and waits until all of
// these have ended or ctx has. What is started meanwhile is not asked: it may
// be started again and again.
func (d *Driver) askProcesses(ctx context.Context, id string) error {
	asked, err := d.others(ctx, id)
	if err != nil {
		return err
	}
	for pid := range asked {
		signal := boot.SignalArgs{CID: id, PID: pid, Signo: int32(unix.SIGTERM), Mode: boot.DeliverToProcess}
		if err := d.call(ctx, id, boot.ContMgrSignal, &signal, nil); errors.Is(err, errDown) {
			return err
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := d.others(ctx, id)
		if err != nil {
			return err
		}
		maps.DeleteFunc(asked, func(pid int32, _ bool) bool { return !left[pid] })
		if len(asked) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// others returns the processes of a sandbox but PID 1.
func (d *Driver) others(ctx context.Context, id string) (map[int32]bool, error) {
	var list []*control.Process
	if err := d.call(ctx, id, boot.ContMgrProcesses, &id, &list); err != nil {
		return nil, err
	}
	pids := make(map[int32]bool)
	for _, p := range list {
		if p != nil && p.PID > 1 {
			pids[int32(p.PID)] = true
		}
	}
	return pids, nil
}

// saveFiles keeps the private layer of a running sandbox for its next start.
func (d *Driver) saveFiles(ctx context.Context, b box) error {
	// Whatever comes next, PID 1 must be able to hear of it.
	return d.still(ctx, b, func() error { return d.tarUpper(ctx, b, b.saved()) })
}

// tarUpper writes the private layer of a sandbox that is held still to an
// archive, which appears complete and durable or not at all.
func (d *Driver) tarUpper(ctx context.Context, b box, archive string) error {
	f, err := os.CreateTemp(filepath.Dir(archive), "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := d.writeUpper(ctx, b.id(), f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("save the files: %w", err)
	}
	return os.Rename(f.Name(), archive)
}

// writeUpper has gVisor write what it keeps of a sandbox's files.
func (d *Driver) writeUpper(ctx context.Context, id string, f *os.File) error {
	opts := control.TarRootfsUpperLayerOpts{ContainerID: id, FilePayload: urpc.FilePayload{Files: []*os.File{f}}}
	if err := d.call(ctx, id, boot.FsTarRootfsUpperLayer, &opts, nil, f); err != nil {
		return fmt.Errorf("save the files: %w", noSpace(err))
	}
	return nil
}

// noSpace recognises a full disk in what the sentry answers.
func noSpace(err error) error {
	if refused, ok := errors.AsType[refusal](err); ok && strings.Contains(string(refused), unix.ENOSPC.Error()) {
		return errors.Join(unix.ENOSPC, err)
	}
	return err
}
