package docker

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Capabilities implements driver.Driver. Unavailable when no engine answers.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	info, err := d.engineInfo(ctx)
	if err != nil {
		return driver.Capabilities{}, err
	}
	return driver.Capabilities{
		Driver:  d.Name(),
		Version: info.ServerVersion,
		Mode:    d.cli.DaemonHost(),
		Support: d.support(info),
	}, nil
}

// engineInfo asks the engine about itself.
func (d *Driver) engineInfo(ctx context.Context) (*system.Info, error) {
	r, err := d.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, d.engineError(ctx, err, "say what it is")
	}
	if r.Info.OSType != "linux" {
		return nil, fault.New(fault.Unsupported, "the docker engine at %s runs %s containers; sandboxes are Linux", d.cli.DaemonHost(), r.Info.OSType)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.info = &r.Info
	return &r.Info, nil
}

// knownInfo is what the engine last said of itself; it is asked if it never was.
func (d *Driver) knownInfo(ctx context.Context) (*system.Info, error) {
	d.mu.Lock()
	info := d.info
	d.mu.Unlock()
	if info != nil {
		return info, nil
	}
	return d.engineInfo(ctx)
}

func (d *Driver) support(info *system.Info) map[string]driver.Support {
	is := func(ok bool, reason string) driver.Support {
		if ok {
			reason = ""
		}
		return driver.Support{OK: ok, Reason: reason}
	}
	local, remoteReason := d.isLocal(info)
	return map[string]driver.Support{
		driver.FeatureMemoryLimit:  is(info.MemoryLimit, "the docker engine has no memory cgroup controller"),
		driver.FeatureCPULimit:     is(info.CPUCfsQuota, "the docker engine has no cpu cgroup controller"),
		driver.FeatureProcessLimit: is(info.PidsLimit, "the docker engine has no pids cgroup controller"),
		driver.FeatureDiskLimit:    diskSupport(info, local),
		driver.FeatureDurableFiles: {OK: true, Reason: "in the container's writable layer"},
		driver.FeatureHostDirs:     is(local, remoteReason),
		driver.FeatureCheckpoint:   {Reason: "docker's checkpoints are experimental, need CRIU and keep no terminal; gvisor has them"},
		driver.FeatureSave:         d.saveSupport(info),
		driver.FeatureResize:       resizeSupport(info.MemoryLimit, info.CPUCfsQuota, info.PidsLimit),
		driver.FeatureNetwork:      d.networkSupport(local, remoteReason),
	}
}

// checkSupport returns Unsupported when the spec asks for what the engine
// cannot do.
func (d *Driver) checkSupport(ctx context.Context, s driver.Spec) error {
	wants := map[string]bool{
		driver.FeatureMemoryLimit:  s.Limits.MemoryBytes > 0,
		driver.FeatureCPULimit:     s.Limits.CPUMillis > 0,
		driver.FeatureDiskLimit:    s.Limits.DiskBytes > 0,
		driver.FeatureProcessLimit: s.Limits.Processes > 0,
		driver.FeatureHostDirs:     len(s.Rootfs.HostDirs) > 0,
		driver.FeatureSave:         len(s.Rootfs.Saved) > 0,
		driver.FeatureNetwork:      s.Network,
	}
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	info, err := d.knownInfo(ctx)
	if err != nil {
		return err
	}
	support := d.support(info)
	for _, feature := range driver.Features() {
		if wants[feature] && !support[feature].OK {
			return fault.New(fault.Unsupported, "%s: %s", feature, support[feature].Reason)
		}
	}
	return nil
}

// isLocal reports whether the engine sees this machine's files. A socket alone
// does not say so: desktop products put one in front of a virtual machine.
func (d *Driver) isLocal(info *system.Info) (bool, string) {
	host := d.cli.DaemonHost()
	if u, err := url.Parse(host); err != nil || u.Scheme != "unix" {
		return false, "the docker engine at " + host + " is remote: it does not see this machine's directories"
	}
	name, _ := os.Hostname() // an empty name is nobody's
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil || info.Name != name || info.KernelVersion != unix.ByteSliceToString(u.Release[:]) {
		return false, "the docker engine runs in another machine, " + info.Name + ": it does not see this one's directories"
	}
	return true, ""
}

// diskSupport says whether the engine can bound a container's writable layer.
func diskSupport(info *system.Info, local bool) driver.Support {
	switch info.Driver {
	case "btrfs", "zfs":
		return driver.Support{OK: true, Reason: "by " + info.Driver}
	case "overlay2":
	default:
		return driver.Support{Reason: "docker's storage driver " + info.Driver + " cannot bound a container's files"}
	}
	var backing string
	for _, kv := range info.DriverStatus {
		if kv[0] == "Backing Filesystem" {
			backing = kv[1]
		}
	}
	if backing == "xfs" && local && hasProjectQuota("/proc/self/mountinfo", info.DockerRootDir) {
		return driver.Support{OK: true, Reason: "by project quotas; a host directory's changes are bounded for themselves"}
	}
	return driver.Support{Reason: "docker bounds a container's files only on xfs with project quotas (mount option pquota), and " + info.DockerRootDir + " is on " + backing + "; use --engine gvisor"}
}

// hasProjectQuota reports whether the file system that holds dir is mounted
// with project quotas.
func hasProjectQuota(mountinfo, dir string) bool {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return false
	}
	best, quota := "", false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		point := f[4]
		if len(point) < len(best) || point != "/" && dir != point && !strings.HasPrefix(dir, point+"/") {
			continue
		}
		best = point
		quota = false
		for o := range strings.SplitSeq(f[len(f)-1], ",") {
			quota = quota || o == "pquota" || o == "prjquota"
		}
	}
	return quota
}
