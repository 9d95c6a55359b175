package docker

import (
	"github.com/moby/moby/api/types/container"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// capabilities is what root of a sandbox may do, out of the 14 that the engine
// would give: what package managers, su and daemons that give up root need,
// and nothing that reaches outside.
//
// Left out on purpose: NET_RAW (forged packets), MKNOD (nothing common makes
// devices; named pipes need no privilege), AUDIT_WRITE (lines in the host's
// audit log), SETPCAP (nothing to hand on).
func capabilities() []string {
	return []string{
		"CHOWN",            // apt, tar, install -o
		"DAC_OVERRIDE",     // root reads and writes files of users, as everybody expects
		"FOWNER",           // chmod and utimes on files of users
		"FSETID",           // set-group-id bits survive a write, as dpkg wants
		"KILL",             // PID 1 ends processes of users
		"SETGID",           // PID 1 and su become users
		"SETUID",           //
		"SETFCAP",          // dpkg unpacks programs with file capabilities; they have no effect under no-new-privileges
		"SYS_CHROOT",       // sshd, apt's own fences, package builds
		"NET_BIND_SERVICE", // port 80 inside
	}
}

// hostConfig is the confinement of a sandbox.
func hostConfig(l driver.Limits) *container.HostConfig {
	never := false
	h := &container.HostConfig{
		NetworkMode:   "none",
		IpcMode:       "private",
		CgroupnsMode:  container.CgroupnsModePrivate,
		CapDrop:       []string{"ALL"},
		CapAdd:        capabilities(),
		SecurityOpt:   []string{"no-new-privileges"}, // the default seccomp profile applies unless it is named here
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "none"}, // PID 1 says nothing; a rogue one must not fill the disk
		Init:          &never,                            // the guest is the init
		// When the whole host runs out of memory, a sandbox goes before the
		// server does.
		OomScoreAdj: 300,
	}
	// A core dump would go where the host's core_pattern says. Descriptors are
	// left at what the engine has itself: it may not be allowed to raise them.
	h.Ulimits = []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}}
	if l.MemoryBytes > 0 {
		h.Memory = l.MemoryBytes
		h.MemorySwap = l.MemoryBytes // both together: no swap
	}
	if l.CPUMillis > 0 {
		h.NanoCPUs = l.CPUMillis * 1e6
	}
	if l.Processes > 0 {
		h.PidsLimit = &l.Processes
	}
	return h
}
