// Package gvisor runs sandboxes on gVisor, embedded in this program: there is
// no external runsc, no daemon and nothing to install.
//
// # How a sandbox is made
//
// gVisor's runsc is a library here, but it re-executes the program it lives
// in. So a program that uses this package is also runsc, and its main (or
// TestMain) begins with
//
//	if gvisor.IsRunsc(os.Args) {
//		gvisor.Main()
//	}
//
// Create writes files only: a record, a seed layer with /etc/hosts and the
// like, and a disk image when the disk is limited. Start runs one child of
// this program, the launcher, in a mount namespace of its own. The launcher
// mounts the sandbox's filesystem there and becomes `runsc run --detach`; the
// gVisor kernel ("sentry") and its file server ("gofer") inherit the
// namespace. No mount is ever visible on the host, and all of them, loop
// devices included, vanish with the last process of the sandbox, however that
// came to its end. Everything else happens in process, over the sentry's
// control socket.
//
// # Root and unprivileged
//
// As root the private layer of a sandbox is the upper directory of an
// overlayfs of the host: files survive a crash of sandbox and host. A disk
// limit puts that directory in an ext4 image of its own. Memory, CPU and a
// backstop for processes are cgroups.
//
// As a plain user the launcher has a user namespace too. Layers are mounted
// read-only and gVisor keeps what is written in an unlinked file on disk, as
// only this way all user ids exist inside. Stop saves that as a tar archive
// and Start restores it; what was written since the last Stop is lost when the
// sandbox ends in any other way. Cgroup limits are not available.
//
// # What is on disk
//
// Below Config.StateDir: run/ is runsc's root (state files and control
// sockets), box/<id>/ everything of one sandbox. A sandbox is found again by
// its directory alone.
package gvisor
