package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// plan tells the launcher what to mount and what to run. It travels as a file,
// as command lines are visible to every user of the host and bounded in size.
type plan struct {
	// Rootfs is where the filesystem is assembled.
	Rootfs string `json:"rootfs"`
	// Layers are the read-only parts, the topmost first.
	Layers []string `json:"layers"`
	// HostDirs are shown below the layers.
	HostDirs []driver.HostDir `json:"hostDirs,omitempty"`
	// Data holds the private layer of the host overlay. Empty: the tree is
	// read-only, gVisor keeps what is written.
	Data string `json:"data,omitempty"`
	// Disk is an ext4 image to mount on Data first; may be empty.
	Disk string `json:"disk,omitempty"`
	// Args is the command line of runsc, without argv[0].
	Args []string `json:"args"`
	// Probe ends the launcher after mounting.
	Probe bool `json:"probe,omitempty"`
}

// Descriptors that the launcher inherits besides the standard ones.
const (
	goFD   = 3 // a pipe: a byte means go on, its end means give up
	lockFD = 4 // the sandbox's lock, held until the launcher ends; may be closed
	// networkFD is the network namespace to run the sandbox in; may be closed.
	networkFD = 5
)

// What runsc, which the launcher becomes, knows namespaces by: networkFD, and
// the one that the launcher runs in.
const (
	networkPath     = "/proc/self/fd/5"
	launcherNetwork = "/proc/self/ns/net"
)

// launch reads the plan named by the first argument, mounts, and turns this
// process into runsc. On failure it says why on standard error and exits with
// status 1.
func launch() {
	if err := prepare(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	runscMain()
}

// prepare does all that comes before runsc.
func prepare(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("the launcher takes one argument, got %d", len(args))
	}
	// These are for this process alone, not for those it leaves behind.
	unix.CloseOnExec(goFD)
	unix.CloseOnExec(lockFD)
	unix.CloseOnExec(networkFD)
	p, err := readPlan(args[0])
	if err != nil {
		return err
	}
	if err := p.mount(); err != nil {
		return err
	}
	if err := waitForGo(); err != nil {
		return err
	}
	if p.Probe {
		os.Exit(0)
	}
	// runsc gives os.Stdin, os.Stdout and os.Stderr to PID 1 of the sandbox,
	// which must not write to our log. The descriptors stay as they are, so
	// that a panic of this process is still seen there.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the null device: %w", err)
	}
	os.Stdin, os.Stdout, os.Stderr = null, null, null
	os.Args = append([]string{runscName}, p.Args...)
	return nil
}

func readPlan(path string) (*plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open launch plan: %w", err)
	}
	defer f.Close()
	var p plan
	if err := json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&p); err != nil {
		return nil, fmt.Errorf("read launch plan: %w", err)
	}
	return &p, nil
}

// waitForGo waits until this process is in the sandbox's cgroup, and whatever
// else the sandbox needs is there.
func waitForGo() error {
	f := os.NewFile(goFD, "go")
	defer f.Close()
	if n, err := f.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("the server did not say go: %w", err)
	}
	return nil
}
