package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initSocket is where PID 1 takes new streams from the host.
const initSocket = "/dev/.sandgate.sock"

// pidOne tries what a process may do to one of its own user's, on PID 1.
func pidOne() error {
	runtime.LockOSThread() // a tracer is a thread
	err := unix.PtraceSeize(1)
	if err == nil {
		_ = unix.PtraceDetach(1)
	}
	say("ptrace", err)
	for _, file := range []string{"mem", "environ", "maps", "auxv", "fd/0", "root/etc/shadow", "cwd/etc/shadow", "map_files", "stack"} {
		fd, err := unix.Open("/proc/1/"+file, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_, err = unix.Read(fd, make([]byte, 1))
			unix.Close(fd)
		}
		say("read "+file, err)
	}
	for _, file := range []string{"mem", "oom_score_adj", "exe", "clear_refs", "uid_map", "comm"} {
		fd, err := unix.Open("/proc/1/"+file, unix.O_WRONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		say("write "+file, err)
	}
	b := make([]byte, 1)
	_, err = unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	say("process_vm_readv", err)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM} {
		say("kill "+sig.String(), syscall.Kill(1, sig))
	}
	say("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 1, 19))
	say("prlimit", unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1}, nil))
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		_, err = unix.PidfdGetfd(fd, 0, 0)
		say("pidfd_getfd", err)
		say("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
	}
	_, err = net.Dial("unix", initSocket)
	say("connect", err)
	say("remove the socket", os.Remove(initSocket))
	say("replace the guest", os.WriteFile("/.sandgate/guest", []byte("x"), 0o755))
	return nil
}

// trace takes hold of PID 1 as a debugger, and kills it as one.
func trace() error {
	runtime.LockOSThread()
	if err := unix.PtraceAttach(1); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(1, &status, unix.WALL, nil); err != nil {
		return err
	}
	// Where the next instruction is, there is nothing.
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(1, &regs); err != nil {
		return err
	}
	regs.SetPC(0)
	if err := unix.PtraceSetRegs(1, &regs); err != nil {
		return err
	}
	return unix.PtraceDetach(1)
}

// programs tries, until the input ends, to write to the program of every
// process that comes by: one that the host starts in a sandbox may be the
// host's own (CVE-2019-5736).
func programs() error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = hold(0, nil)
	}()
	held := map[string]int{} // open for reading, to try again when nobody runs it
	tried := 0
	for {
		select {
		case <-over:
			fmt.Fprintf(os.Stdout, "tried %d of %d programs\n", tried, len(held))
			return nil
		default:
		}
		list, _ := filepath.Glob("/proc/[0-9]*/exe") // a pattern that is one
		for _, path := range list {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			var st unix.Stat_t
			name := ""
			if unix.Fstat(fd, &st) == nil {
				name = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
			}
			mine, ok := self.Sys().(*syscall.Stat_t)
			if _, again := held[name]; again || name == "" || ok && mine.Ino == st.Ino {
				unix.Close(fd)
				continue
			}
			held[name] = fd
		}
		for name, fd := range held {
			tried++
			w, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			// Busybox is the sandbox's own; a test tells it by its name.
			link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(w))
			fmt.Fprintf(os.Stdout, "opened %s %s\n", name, link)
			unix.Close(w)
		}
	}
}

// terminals pushes input into every terminal that it can open.
func terminals() error {
	list, err := filepath.Glob("/dev/pts/[0-9]*")
	if err != nil {
		return err
	}
	for _, path := range append(list, "/dev/console", "/dev/tty0", "/dev/tty1", "/proc/1/fd/0", "/proc/1/fd/1") {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			c := byte('x')
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
			if errno != 0 {
				err = errno
			}
			unix.Close(fd)
		}
		say("TIOCSTI "+path, err)
	}
	return nil
}

// nested runs a command of this program as root of a new user namespace, where
// it has every privilege over what belongs to the namespace.
func nested(args []string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}

// signals storms PID 1 with every signal but those that ask it to end.
func signals(n int) error {
	sent := 0
	for sent < n {
		for sig := syscall.Signal(1); sig < 65; sig++ {
			if sig == syscall.SIGTERM {
				continue
			}
			if err := syscall.Kill(1, sig); err != nil && !errors.Is(err, syscall.EAGAIN) {
				return fmt.Errorf("signal %d: %w", sig, err)
			}
			sent++
		}
	}
	fmt.Fprintf(os.Stdout, "sent %d\n", sent)
	return nil
}

// connections opens streams to PID 1 that say nothing.
func connections(n int) error {
	var open []net.Conn
	var err error
	for len(open) < n && err == nil {
		var c net.Conn
		if c, err = net.DialTimeout("unix", initSocket, 2*time.Second); err == nil {
			open = append(open, c)
		}
	}
	if err != nil && strings.Contains(err.Error(), "denied") {
		return err
	}
	return hold(len(open), err)
}
