package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

const (
	// launchTimeout bounds a start. It takes a tenth of a second on an idle
	// machine.
	launchTimeout = 2 * time.Minute
	// systemPath is where programs are looked for, whatever the environment of
	// the server says.
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, id string) error {
	h, err := d.lock(ctx, id)
	if err != nil {
		return err
	}
	defer h.release()
	r, err := h.readRecord()
	if err != nil {
		return broken(err, id)
	}
	if d.running(ctx, id) {
		if err := d.recoverHold(ctx, h.box); err != nil || d.running(ctx, id) {
			return d.failure(err, "started", id)
		}
	}
	return d.start(ctx, h, r)
}

// start starts a sandbox that does not run from its files.
func (d *Driver) start(ctx context.Context, h *held, r *record) error {
	id := h.id()
	l := h.readLife()
	// What is left of an earlier life goes first: it holds the names.
	if err := d.settle(ctx, h.box, r, &l); err != nil {
		return d.failure(err, "started", id)
	}
	network, err := d.attach(ctx, r)
	if err != nil {
		return d.failure(err, "started", id)
	}
	defer network.Close()
	if err := d.launch(ctx, h, r, l, network, "", h.discardImage); err != nil {
		if n := r.Spec.Limits.MemoryBytes; n > 0 && d.host().oomKills(d.cgroupOf(id)) > 0 {
			err = fault.Wrap(err, fault.Exhausted, "sandbox %s does not start within its memory limit of %s", id, size(n)).About("sandbox")
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return d.failure(errors.Join(err, d.bury(clean, id, true)), "started", id)
	}
	return nil
}

func broken(err error, id string) error {
	return fault.Wrap(err, fault.State, "sandbox %s is damaged; delete it", id).About("sandbox")
}

// launch runs the launcher and waits until PID 1 of the sandbox runs, anew or
// as it is in a memory image. The network namespace is nil for a sandbox that
// attach has none for. When all is there that a start depends on, and nothing
// of the sandbox runs yet, ready is called: what fails before costs no memory
// image.
func (d *Driver) launch(ctx context.Context, h *held, r *record, l life, network *os.File, image string, ready func() error) error {
	p := plan{
		Rootfs:   h.rootfs(),
		Layers:   []string{h.seed()},
		HostDirs: r.Spec.Rootfs.HostDirs,
		Args:     d.runscArgs(h.box, r, image),
	}
	if r.Storage == hostOverlay {
		for _, dir := range r.Spec.Rootfs.Saved {
			p.Layers = append(p.Layers, filepath.Join(dir, savedTree))
		}
	}
	p.Layers = append(p.Layers, r.Spec.Rootfs.Layers...)
	if r.Storage == hostOverlay {
		p.Data = h.data()
		if r.Spec.Limits.DiskBytes > 0 {
			p.Disk = h.disk()
		}
	}
	// With the logs go what a crash left: nobody holds what does not run, and a
	// half-made private layer is none.
	if err := os.RemoveAll(filepath.Join(h.data(), upperDir+halfMade)); err != nil {
		return err
	}
	for _, log := range []string{h.runscLog(), h.panicLog(), h.held(), h.disk() + halfMade} {
		if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := writeJSON(h.plan(), &p, false); err != nil {
		return err
	}
	if err := writeJSON(h.bundle()+"/config.json", d.ociSpec(h.box, r, image != ""), false); err != nil {
		return err
	}
	before := l
	l = life{Started: true, BootID: bootID(), Build: build()}
	if err := writeJSON(h.life(), &l, false); err != nil {
		return err
	}
	host := d.host()
	group := d.cgroupOf(r.Spec.ID)
	if host.cgroups {
		if err := host.make(d.cgroup, group, r.Spec.Limits); err != nil {
			return err
		}
	}
	join := func(pid int) error {
		if host.cgroups {
			if err := host.join(group, pid); err != nil {
				return err
			}
		}
		if err := d.adopt(ctx, r, pid); err != nil {
			return err
		}
		return ready()
	}
	err := d.runLauncher(ctx, h.plan(), h.launchLog(), h.file, network, join)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = fmt.Errorf("%w: %s", err, launchErrors(h.launchLog(), h.runscLog()))
	}
	// It did not start, so it is what it was before.
	if before.Started {
		return errors.Join(err, writeJSON(h.life(), &before, false))
	}
	return errors.Join(err, os.Remove(h.life()))
}

// runLauncher runs the launcher on a plan. Its output is a file: a pipe would
// stay open in the processes it leaves behind. The lock is held by the launcher
// too; it and the network namespace may be nil. The launcher prepares while
// join is called with its process id, and starts nothing before join has
// returned.
func (d *Driver) runLauncher(ctx context.Context, planFile, logFile string, lock, network *os.File, join func(pid int) error) error {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.executable, planFile)
	cmd.Args[0] = launcherName
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + systemPath}
	cmd.Stdout, cmd.Stderr = log, log
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer goRead.Close()
	defer goWrite.Close()
	cmd.ExtraFiles = []*os.File{goRead, lock, network} // goFD, lockFD, networkFD
	// A session of its own: what happens to the server's terminal or process
	// group is nothing to the sandbox.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	namespaces := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWNET)
	if d.root {
		cmd.SysProcAttr.Unshareflags = namespaces
	} else {
		cmd.SysProcAttr.Cloneflags = namespaces | unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the launcher: %w", err)
	}
	goRead.Close()
	err = join(cmd.Process.Pid)
	if err == nil {
		_, err = goWrite.Write([]byte{1})
	}
	goWrite.Close() // without a byte: the launcher gives up
	waitErr := cmd.Wait()
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return err
	}
	return waitErr
}

// launchErrors returns what the launcher and runsc wrote about a failure.
func launchErrors(files ...string) string {
	var all []string
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(f, 16<<10))
		f.Close()
		if text = bytes.TrimSpace(text); len(text) > 0 {
			all = append(all, string(text))
		}
	}
	return strings.Join(all, "; ")
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// bootID tells one boot of the host from another.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// settle writes down how a sandbox that does not run ended, and clears away
// what is left of it.
func (d *Driver) settle(ctx context.Context, b box, r *record, l *life) error {
	if l.Started && l.Exit == nil {
		exit := d.autopsy(r, *l)
		l.Exit = &exit
		if err := writeJSON(b.life(), l, false); err != nil {
			return err
		}
	}
	return d.bury(ctx, b.id(), false)
}
