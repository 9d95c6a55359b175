package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory takes MiB, and uses them.
func memory(n int) error {
	var held [][]byte
	for range n {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return hold(len(held), err)
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
		}
		held = append(held, b)
	}
	return hold(len(held), nil)
}

// clone makes a process that does nothing but system calls: it ends at once,
// or never.
func clone(end bool) (int, error) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		for !end {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(pid), nil
}

// forkBomb makes processes until the system refuses, and at most n. They end
// with the command. Root of a namespace first asks for a higher limit.
func forkBomb(n int) error {
	_ = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	var made []int
	var err error
	for len(made) < n {
		var pid int
		if pid, err = clone(false); err != nil {
			break
		}
		made = append(made, pid)
	}
	held := hold(len(made), err)
	for _, pid := range made {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
	}
	return held
}

// zombies makes processes that end and that nobody asks for.
func zombies(n int) error {
	made := 0
	var err error
	for made < n {
		if _, err = clone(true); err != nil {
			break
		}
		made++
	}
	return hold(made, err)
}

// threads makes threads. What the runtime cannot make ends the program, which
// says how many there were.
func threads(n int) error {
	started := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			select {}
		}()
		<-started
	}
	return hold(n, nil)
}

// descriptors opens files until it gets no more.
func descriptors(n int) error {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return err
	}
	most.Cur = most.Max
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &most) // then it is fewer
	made := 0
	var err error
	for made < n {
		if _, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
			break
		}
		made++
	}
	return hold(made, err)
}

// watches opens inotify instances with a watch each.
func watches(n int) error {
	made := 0
	var err error
	for made < n {
		var fd int
		if fd, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
		if _, err = unix.InotifyAddWatch(fd, "/tmp", unix.IN_CREATE); err != nil {
			break
		}
		made++
	}
	return hold(made, err)
}

// inodes makes empty files, in directories of a thousand, in the present one.
func inodes(n int) error {
	made := 0
	for made < n {
		dir := strconv.Itoa(made / 1000)
		if made%1000 == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				fmt.Fprintf(os.Stdout, "took %d (%v)\n", made, err)
				return nil
			}
		}
		fd, err := unix.Open(filepath.Join(dir, strconv.Itoa(made)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
		if err != nil {
			fmt.Fprintf(os.Stdout, "took %d (%v)\n", made, err)
			return nil
		}
		unix.Close(fd)
		made++
	}
	fmt.Fprintf(os.Stdout, "took %d (<nil>)\n", made)
	return nil
}

// deep makes directories with the longest names, each in the one before, and
// a file with a name that is too long for anything.
func deep(n int) error {
	_, err := unix.Open(strings.Repeat("x", 1<<20), unix.O_CREAT|unix.O_WRONLY, 0o644)
	say("a name of 1 MiB", err)
	name := strings.Repeat("d", 255)
	made := 0
	for made < n {
		if err = unix.Mkdir(name, 0o755); err != nil {
			break
		}
		if err = unix.Chdir(name); err != nil {
			break
		}
		made++
	}
	fmt.Fprintf(os.Stdout, "took %d (%v)\n", made, err)
	return nil
}
