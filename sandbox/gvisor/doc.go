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
// # Saved, suspended, connected
//
// Save and Suspend hold the sandbox still for as long as they read. A file says
// so, as gVisor neither ends a hold nor tells of one when the server is killed;
// whoever comes next ends it (hold.go). A saved layer is a copy of the private
// layer and a lower layer of whoever starts from it; as a plain user it is an
// archive, and saved layers are merged into the one that gVisor starts from. A
// memory image lies in the sandbox's directory, is valid from the moment all of
// it is durable, and used up before the first process runs again (image.go).
// What a stream has started does not live through that, as in gVisor it is not
// of PID 1's family; the guest's processes do.
//
// FIFOs that a sandbox makes are kept in gVisor's memory as root, as its file
// server makes none: they live through a suspension, and neither through a stop
// nor in a saved layer.
//
// A sandbox with a network runs in a namespace that Config.Network hands in, or
// as a plain user in that of its launcher, which Config.Network connects.
// gVisor takes the addresses of its device over, so this is done anew for every
// start. Connections that were open when it was suspended are reset when
// it is resumed; sockets that listen go on.
//
// # What is on disk
//
// Below Config.StateDir: run/ is runsc's root (state files and control
// sockets), box/<id>/ everything of one sandbox. A sandbox is found again by
// its directory alone.
package gvisor
