package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// host is what this host allows, found out once by trying.
type host struct {
	hierarchy
	storage storage
	cgroups bool // each sandbox has a group of its own

	usable  driver.Support // sandboxes at all
	memory  driver.Support
	cpu     driver.Support
	disk    driver.Support
	durable driver.Support
}

// probePrefix begins the names of directories in which mounting is tried.
const probePrefix = "probe-"

const needsRoot = "needs root: run sandgate as root, or use the docker engine"

// probe finds out what works. It leaves nothing behind.
func (d *Driver) probe() host {
	h := host{storage: sentryFile}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := checkStatic(d.executable); err != nil {
		h.usable = driver.Support{Reason: err.Error()}
		return h
	}
	if !d.root {
		lost := driver.Support{Reason: "only what was written before the last stop survives; " + needsRoot}
		h.memory, h.cpu = driver.Support{Reason: needsRoot}, driver.Support{Reason: needsRoot}
		h.durable = lost
		h.usable = d.probeMounts(ctx, sentryFile, false)
		h.disk = driver.Support{OK: true, Reason: "gVisor's own file system"}
		if strings.ContainsAny(d.dir, ",:") {
			h.usable = driver.Support{Reason: "the path of the state directory must not contain , or :"}
		}
		return h
	}
	h.hierarchy = findHierarchy()
	h.probeCgroups(d.cgroup)
	if !h.cgroups {
		h.trees = nil
	}
	h.durable = d.probeMounts(ctx, hostOverlay, false)
	h.usable = h.durable
	if h.durable.OK {
		h.storage = hostOverlay
		h.disk = d.probeMounts(ctx, hostOverlay, true)
		if h.disk.OK {
			h.disk.Reason = "an ext4 image for each sandbox"
		}
		return h
	}
	// A state directory on a file system that overlayfs cannot write to, such
	// as another overlayfs.
	h.durable.Reason = "overlayfs does not work on the state directory: " + h.durable.Reason
	h.usable = d.probeMounts(ctx, sentryFile, false)
	h.disk = driver.Support{OK: true, Reason: "gVisor's own file system"}
	return h
}

// probeMounts runs the launcher on a filesystem with a layer and a host
// directory, as far as mounting it. A disk that is full says nothing about the
// host: sandboxes whose files are there must not be taken for lost by it.
func (d *Driver) probeMounts(ctx context.Context, s storage, withDisk bool) driver.Support {
	found := d.tryMounts(ctx, s, withDisk)
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if strings.Contains(found.Reason, full.Error()) {
			d.log.Warn("the disk is full: cannot try what this host can", "dir", d.dir, "reason", found.Reason)
			return driver.Support{OK: true}
		}
	}
	return found
}

func (d *Driver) tryMounts(ctx context.Context, s storage, withDisk bool) driver.Support {
	no := func(err error) driver.Support { return driver.Support{Reason: firstLine(err.Error())} }
	dir, err := os.MkdirTemp(d.dir, probePrefix)
	if err != nil {
		return no(err)
	}
	defer os.RemoveAll(dir)
	b := box{dir: dir}
	for _, sub := range []string{b.seed() + "/tmp", b.seed() + "/shown", b.bundle(), b.rootfs(), b.data(), filepath.Join(dir, "layer"), filepath.Join(dir, "shown")} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return no(err)
		}
	}
	p := plan{
		Rootfs: b.rootfs(), Layers: []string{b.seed(), filepath.Join(dir, "layer")}, Probe: true,
		HostDirs: []driver.HostDir{{Source: filepath.Join(dir, "shown"), Target: "/shown"}},
	}
	if s == hostOverlay {
		p.Data = b.data()
	}
	if withDisk {
		if _, err := findMkfs(); err != nil {
			return driver.Support{Reason: "mkfs.ext4 is missing: install e2fsprogs"}
		}
		p.Disk = b.disk()
		if err := makeDisk(ctx, p.Disk, minDisk); err != nil {
			return no(err)
		}
	}
	if err := writeJSON(b.plan(), &p, false); err != nil {
		return no(err)
	}
	if err := d.runLauncher(ctx, b.plan(), b.launchLog(), nil, nil, func(int) error { return nil }); err != nil {
		if why := launchErrors(b.launchLog()); why != "" {
			return driver.Support{Reason: firstLine(why)}
		}
		if d.root && errors.Is(err, unix.EPERM) {
			return driver.Support{Reason: "root may not make mounts here (no CAP_SYS_ADMIN, as in a container): run sandgate on the host, or use the docker engine"}
		}
		if !d.root {
			return driver.Support{Reason: "user namespaces are not available to plain users (" + firstLine(err.Error()) +
				"); " + userNamespaceHint() + ", or " + needsRoot}
		}
		return no(err)
	}
	return driver.Support{OK: true}
}

// userNamespaceHint names the setting that is most likely in the way.
func userNamespaceHint() string {
	for name, bad := range map[string]string{
		"kernel.apparmor_restrict_unprivileged_userns": "1",
		"kernel.unprivileged_userns_clone":             "0",
		"user.max_user_namespaces":                     "0",
	} {
		b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err == nil && strings.TrimSpace(string(b)) == bad {
			return fmt.Sprintf("sysctl %s is %s", name, bad)
		}
	}
	return "see sysctl user.max_user_namespaces"
}

// probeCgroups finds out whether limits can be set, by making a group.
func (h *host) probeCgroups(parent string) {
	h.memory = driver.Support{Reason: "no cgroups are mounted at " + cgroupRoot}
	h.cpu = h.memory
	if len(h.trees) == 0 {
		return
	}
	group := fmt.Sprintf("%s-probe-%d", parent, os.Getpid())
	defer func() {
		for _, tree := range h.trees {
			// Where they could not be made there is nothing to remove.
			_ = unix.Rmdir(filepath.Join(tree, group, "probe"))
			_ = unix.Rmdir(filepath.Join(tree, group))
		}
	}()
	version := driver.Support{OK: true, Reason: "cgroups version 1"}
	if h.v2 {
		version.Reason = "cgroups version 2"
	}
	try := func(l driver.Limits) driver.Support {
		if err := h.make(group, group+"/probe", l); err != nil {
			return driver.Support{Reason: firstLine(err.Error())}
		}
		return version
	}
	h.cgroups = try(driver.Limits{}).OK
	h.memory = try(driver.Limits{MemoryBytes: 64 << 20})
	h.cpu = try(driver.Limits{CPUMillis: 500})
}

// checkLimits returns an Unsupported fault for a limit that would not hold.
func (h host) checkLimits(spec driver.Spec) error {
	if !h.usable.OK {
		return fault.New(fault.Unsupported, "gVisor sandboxes do not work on this host: %s", h.usable.Reason)
	}
	for _, l := range []struct {
		name    string
		asked   int64
		support driver.Support
	}{
		{driver.FeatureMemoryLimit, spec.Limits.MemoryBytes, h.memory},
		{driver.FeatureCPULimit, spec.Limits.CPUMillis, h.cpu},
		{driver.FeatureDiskLimit, spec.Limits.DiskBytes, h.disk},
	} {
		if l.asked > 0 && !l.support.OK {
			return fault.New(fault.Unsupported, "a %s cannot be enforced here: %s", l.name, l.support.Reason)
		}
	}
	return nil
}

// save says what saved layers have.
func (h host) save() driver.Support {
	if h.storage == hostOverlay {
		return driver.Support{OK: true, Reason: "but for FIFOs, which gVisor keeps in memory"}
	}
	return driver.Support{OK: true}
}

// resize says whether limits of a running sandbox can be changed.
func (h host) resize() driver.Support {
	if !h.memory.OK {
		return h.memory
	}
	if !h.cpu.OK {
		return h.cpu
	}
	return driver.Support{OK: true, Reason: "memory and cpu, and processes of one that is stopped"}
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	if err := ctx.Err(); err != nil {
		return driver.Capabilities{}, fault.From(err)
	}
	h := d.host()
	var hostDirs string
	if !d.root {
		hostDirs = "files of other users of the host show as nobody's"
	}
	c := driver.Capabilities{Driver: Name, Version: version(), Mode: "unprivileged", Support: map[string]driver.Support{
		driver.FeatureMemoryLimit:  h.memory,
		driver.FeatureCPULimit:     h.cpu,
		driver.FeatureDiskLimit:    h.disk,
		driver.FeatureProcessLimit: {OK: true, Reason: "for each user inside"},
		driver.FeatureDurableFiles: h.durable,
		driver.FeatureHostDirs:     {OK: true, Reason: hostDirs},
		driver.FeatureCheckpoint:   {OK: true, Reason: "for this build of gVisor and this kind of processor"},
		driver.FeatureSave:         h.save(),
		driver.FeatureResize:       h.resize(),
		driver.FeatureNetwork:      d.probeNetwork(h),
	}}
	if d.root {
		c.Mode = "root"
	}
	if !h.usable.OK {
		for feature := range c.Support {
			c.Support[feature] = h.usable
		}
	}
	return c, nil
}

// version is the version of the gVisor module in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "gvisor.dev/gvisor" {
				return m.Version
			}
		}
	}
	return "unknown"
}
