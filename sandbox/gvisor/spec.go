package gvisor

import (
	"fmt"
	"os"
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// capabilities of root in a sandbox: those container engines give by default,
// and ptrace for debuggers. All are capabilities in gVisor's kernel, none on
// the host. SYS_ADMIN and SYS_RESOURCE are missing on purpose: with either,
// root would not be bound by the process limit.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
}

var ociCapabilities = &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities}

// ociSpec describes the sandbox to runsc.
func (d *Driver) ociSpec(b box, r *record, resume bool) *specs.Spec {
	hostname := r.Spec.Hostname
	if hostname == "" {
		hostname = r.Spec.ID
	}
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: hostname,
		Root:     &specs.Root{Path: b.rootfs()},
		Process: &specs.Process{
			Args:         []string{driver.GuestPath, "init"},
			Env:          r.Spec.Guest.Env,
			Cwd:          "/",
			Capabilities: ociCapabilities,
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 1 << 20}},
		},
		Mounts:      mounts(r.Spec),
		Annotations: sizeAnnotations(r.Spec.Limits),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}
	if n := r.Spec.Limits.Processes; n > 0 {
		limit := uint64(n)
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NPROC", Soft: limit, Hard: limit})
	}
	if r.Spec.Network {
		s.Linux.Namespaces[len(s.Linux.Namespaces)-1].Path = d.namespacePath()
	}
	// A memory image has the files of this kind of storage in it.
	if _, err := os.Lstat(b.saved()); err == nil && !resume {
		s.Annotations[specutils.AnnotationRootfsUpperTar] = b.saved()
	}
	return s
}

func mounts(spec driver.Spec) []specs.Mount {
	// A tmpfs is memory of the sandbox. Half of it is what Linux gives.
	shm := int64(64 << 20)
	if m := spec.Limits.MemoryBytes; m > 0 {
		shm = m / 2
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=16m"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", fmt.Sprintf("size=%d", shm)}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		// Over the directory too: root could move it away, and Dial would find
		// another program in its place.
		{Destination: path.Dir(driver.GuestPath), Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=755", "size=64k"}},
		{Destination: driver.GuestPath, Type: "bind", Source: spec.Guest.Path, Options: []string{"bind", "ro"}},
	}
}

// runscArgs is the command line with which the launcher becomes runsc. The
// image, if any, is the directory of a memory image to start from.
func (d *Driver) runscArgs(b box, r *record, image string) []string {
	// A network stack of its own with a loopback and nothing else. Ports are
	// reached through the guest.
	network := "--network=none"
	if r.Spec.Network {
		// The same with the device, the addresses and the routes that are found
		// in the namespace of the spec.
		network = "--network=sandbox"
	}
	args := []string{
		"--root=" + d.runDir(),
		"--log=" + b.runscLog(),
		"--panic-log=" + b.panicLog(),
		"--platform=systrap",
		network,
		// The launcher's network namespace is new and empty, or the sandbox's.
		"--gofer-network-namespace=host",
		"--host-settings=ignore",
		// The launcher is in the sandbox's group already.
		"--ignore-cgroups",
		// su and sudo work; setuid means nothing outside of the sandbox.
		"--allow-suid",
	}
	switch r.Storage {
	case hostOverlay:
		args = append(args, "--overlay2=none")
	case sentryFile:
		overlay := "--overlay2=root:dir=" + b.filestore()
		if n := r.Spec.Limits.DiskBytes; n > 0 {
			overlay += fmt.Sprintf(",size=%d", n)
		}
		args = append(args, overlay, "--allow-rootfs-tar-annotation")
	}
	if image != "" {
		// Limits may have changed meanwhile; all else is as it was.
		return append(args, "--restore-spec-validation=ignore", "restore", "--detach", "--bundle="+b.bundle(), "--image-path="+image, b.id())
	}
	return append(args, "run", "--detach", "--bundle="+b.bundle(), b.id())
}
