package agent

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// identity runs functions as one user of the sandbox, whom the kernel then asks
// for what may be done. They must not start goroutines that are to act as the
// user too.
type identity func(do func() error) error

// identity finds a user; the empty name is the one that the guest runs as.
func (a *Agent) identity(name string) (identity, error) {
	self := func(do func() error) error { return do() }
	if name == "" {
		return self, nil
	}
	who, err := a.lookupUser(name)
	if err != nil {
		return nil, err
	}
	if !who.switches() {
		return self, nil
	}
	return func(do func() error) error {
		return onThread(func() error {
			if err := who.assume(); err != nil {
				return fault.Wrap(err, fault.Unsupported, "this sandbox is not allowed to switch to user %q; leave the user out", who.name)
			}
			return do()
		})
	}, nil
}

// onThread runs do on a thread of its own that ends with it. The identity of a
// thread, changed, must not come back to the others. The first thread of a
// process cannot end, so it is not used.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			result <- onThread(do)
			return
		}
		result <- do()
	}()
	return <-result
}

// assume makes the user the effective one of this thread. The real one stays,
// so that the user's processes may not signal the guest.
func (u user) assume() error {
	groups := append([]uint32{}, u.groups...)
	if len(groups) == 0 {
		groups = []uint32{u.gid}
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return errno
	}
	const keep = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.gid), keep); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.uid), keep); errno != 0 {
		return errno
	}
	return nil
}
