// Package fake is a driver without isolation, for fast tests of what stands on
// a driver: the Engine, the doors, the screens.
//
// It behaves as the contract says and passes its conformance suite. The guest
// is the real one as a library, on pipes; processes are real processes of this
// machine, in a folder of their own and with no walls around them, so it is no
// way to run what is not trusted. All that lives in a [Host], as sandboxes
// live on a machine: a driver that is closed and one that is opened anew on
// the same Host are a server before and after its restart.
//
//	host := fake.NewHost()
//	defer host.Close()
//	d := fake.New(fake.Config{Host: host})
//	host.FailNext(fake.Start, fault.New(fault.Unavailable, "no more power"))
//	host.OOM(id)
//
// Limits are accepted and not enforced; OOM does what exceeding one does.
// Layers and host directories are looked at and not shown. The private layer
// of a sandbox is its workspace: that is what Save keeps and what a new sandbox
// gets of saved layers. A suspended sandbox keeps its processes stopped by
// signal, until SpoilMemory says that this is of no use any more.
package fake
