package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls tries system calls that belong to whoever runs the machine. Each asks
// for what would change nothing.
func calls() error {
	raw := func(name string, nr uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno == 0 {
			say(name, nil)
			return
		}
		say(name, errno)
	}
	var kept []*byte // until all is over
	path := func(s string) uintptr {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			panic(err) // a constant of this file
		}
		kept = append(kept, p)
		return uintptr(unsafe.Pointer(p))
	}
	defer func() { runtime.KeepAlive(kept) }()
	now := unix.NsecToTimeval(time.Now().UnixNano())
	say("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF))
	say("settimeofday", unix.Settimeofday(&now))
	say("adjtimex", func() error {
		_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_SETOFFSET})
		return err
	}())
	say("sethostname", unix.Sethostname([]byte("escaped")))
	say("setdomainname", unix.Setdomainname([]byte("escaped")))
	raw("init_module", unix.SYS_INIT_MODULE, path("x"), 1, path(""))
	say("finit_module", unix.FinitModule(0, "", 0))
	say("delete_module", unix.DeleteModule("no_such_module", unix.O_NONBLOCK))
	raw("kexec_load", unix.SYS_KEXEC_LOAD, 0, 1<<20, path("x"), 1) // more segments than it takes
	raw("swapon", unix.SYS_SWAPON, path("/no-such-file"), 0)
	raw("swapoff", unix.SYS_SWAPOFF, path("/no-such-file"))
	raw("acct", unix.SYS_ACCT, path("/no-such-file"))
	raw("bpf", unix.SYS_BPF, 0, 0, 0)
	event := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE}
	event.Size = uint32(unsafe.Sizeof(event))
	_, err := unix.PerfEventOpen(&event, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	say("perf_event_open", err)
	raw("keyctl", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0)
	raw("add_key", unix.SYS_ADD_KEY, path("user"), path("escape"), path("x"), 1, ^uintptr(2)) // the keyring of the session
	raw("userfaultfd", unix.SYS_USERFAULTFD, unix.O_CLOEXEC)
	raw("mount", unix.SYS_MOUNT, path("none"), path("/mnt"), path("tmpfs"), 0, 0)
	raw("umount", unix.SYS_UMOUNT2, path("/proc"), unix.MNT_DETACH)
	raw("pivot_root", unix.SYS_PIVOT_ROOT, path("/mnt"), path("/mnt"))
	raw("move_mount", unix.SYS_MOVE_MOUNT, ^uintptr(0), path("/mnt"), ^uintptr(0), path("/mnt"), 0)
	raw("fsopen", unix.SYS_FSOPEN, path("tmpfs"), 0)
	raw("open_tree", unix.SYS_OPEN_TREE, ^uintptr(99), path("/"), 1)
	say("unshare mount", unix.Unshare(unix.CLONE_NEWNS))
	for _, name := range []string{"mnt", "pid", "net", "uts", "ipc", "cgroup"} {
		f, err := os.Open("/proc/1/ns/" + name)
		if err == nil {
			err = unix.Setns(int(f.Fd()), 0)
			f.Close()
		}
		say("setns "+name, err)
	}
	// The inode of every root directory, by which the host's was once found.
	_, err = unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}), unix.O_RDONLY)
	say("open_by_handle_at", err)
	return nil
}

// devices tries to make the devices given as TYPE:MAJOR:MINOR, and to read
// them.
func devices(args []string) error {
	for _, arg := range args {
		var kind string
		var major, minor uint32
		if _, err := fmt.Sscanf(strings.ReplaceAll(arg, ":", " "), "%s %d %d", &kind, &major, &minor); err != nil {
			return fmt.Errorf("%q: %w", arg, err)
		}
		mode := uint32(unix.S_IFBLK)
		if kind == "c" {
			mode = unix.S_IFCHR
		}
		name := filepath.Join("/tmp", strings.ReplaceAll("device:"+arg, ":", "-"))
		err := unix.Mknod(name, mode|0o600, int(unix.Mkdev(major, minor)))
		if err == nil {
			err = peek(name)
			_ = os.Remove(name)
		}
		say(arg, err)
	}
	// What is there already may be no more than what every program needs.
	return filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeDevice == 0 || strings.HasPrefix(path, "/dev/pts/") {
			return nil // goes away meanwhile
		}
		fmt.Fprintf(os.Stdout, "found %s\n", path)
		return nil
	})
}

// peek opens a file for reading, and reads if that does not have to wait.
func peek(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return nil
}

// writable opens for writing, and does not write, whatever lies in the
// directories, and prints what it gets.
func writable(roots []string) error {
	tried := 0
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			name, _ := strings.CutPrefix(path, "/proc/")
			switch {
			case err != nil:
				return nil // closed to us
			case d.IsDir() && (strings.Trim(name, "0123456789") == "" || name == "self" || name == "thread-self"):
				return fs.SkipDir // what a process may do with itself
			case !d.Type().IsRegular():
				return nil
			case !permitted(d):
				return nil // root opens it, and then there is nothing to write to
			case tried > 50_000:
				return fs.SkipAll
			}
			tried++
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				var st unix.Stat_t
				if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG { // and nothing that covers it
					fmt.Fprintln(os.Stdout, path)
				}
				unix.Close(fd)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stdout, "tried %d\n", tried)
	return nil
}

// permitted reports whether anybody may write to a file.
func permitted(d fs.DirEntry) bool {
	info, err := d.Info()
	return err == nil && info.Mode()&0o222 != 0
}
