package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// runscState is what this package needs of runsc's state file.
type runscState struct {
	Status  string `json:"status"`
	Gofer   int    `json:"goferPid"`
	Sandbox struct {
		PID int `json:"pid"`
	} `json:"sandbox"`
}

func (d *Driver) stateFile(id string) string {
	return filepath.Join(d.runDir(), id+"_sandbox:"+id+".state")
}

func (d *Driver) stateLock(id string) string {
	return filepath.Join(d.runDir(), id+"_sandbox:"+id+".lock")
}

// readState reads the state file, without runsc's lock: it may be in the hands
// of a process that does not come to an end.
func (d *Driver) readState(id string) (runscState, error) {
	var s runscState
	err := readJSON(d.stateFile(id), &s)
	return s, err
}

// process is a handle on one process of a sandbox, which no later process of
// the same number is mistaken for.
type process struct {
	pid   int
	pidfd *os.File
}

// open returns a handle on pid when it is a process of the sandbox: the number
// in a state file may belong to anybody after a crash or a reboot. It returns
// nil when there is no such process.
func (d *Driver) open(id string, pid int) *process {
	if pid <= 1 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	p := &process{pid: pid, pidfd: os.NewFile(uintptr(fd), "pidfd")}
	// First the handle, then the look: now it is this process or none.
	if owner, ok := d.owner(pid); !ok || owner != id {
		p.close()
		return nil
	}
	return p
}

// owner tells which of our sandboxes a process belongs to, by its command
// line, which begins with the names runsc gives to its processes and our own
// --root, and ends with the id.
func (d *Driver) owner(pid int) (id string, ok bool) {
	id, ok = d.claimedOwner(pid)
	return id, ok && driver.ValidID(id)
}

func (d *Driver) claimedOwner(pid int) (id string, ok bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return "", false
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", false
	}
	args := strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), runscName) && args[0] != "/proc/self/exe" {
		return "", false
	}
	if args[0] == launcherName && len(args) == 2 {
		if dir := filepath.Dir(args[1]); filepath.Dir(dir) == d.boxDir() {
			return filepath.Base(dir), true
		}
		return "", false
	}
	for _, arg := range args[1:] {
		if arg == "--root="+d.runDir() {
			return args[len(args)-1], true
		}
	}
	return "", false
}

// sentry returns a handle on the sandbox's kernel, or nil.
func (d *Driver) sentry(id string) *process {
	s, err := d.readState(id)
	if err != nil {
		return nil
	}
	return d.open(id, s.Sandbox.PID)
}

// processes finds the processes of our sandboxes, or of one of them, by
// looking at all of the host. The caller closes them.
func (d *Driver) processes(only string) (map[string][]*process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := make(map[string][]*process)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, ok := d.owner(pid)
		if !ok || only != "" && id != only {
			continue
		}
		if p := d.open(id, pid); p != nil {
			found[id] = append(found[id], p)
		}
	}
	return found, nil
}

func (p *process) close() { p.pidfd.Close() }

// kill ends the process. It does not wait.
func (p *process) kill() error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	var killErr error
	if err := raw.Control(func(fd uintptr) { killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	if killErr != nil && !errors.Is(killErr, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.pid, killErr)
	}
	return nil
}

// wait waits for the end of the process, which need not be our child and may
// stay a zombie. Any number of waits cost no thread.
func (p *process) wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process: %w", err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.pidfd.SetReadDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	defer func() {
		if !stop() {
			<-interrupted
			p.pidfd.SetReadDeadline(time.Time{}) // for the next wait
		}
	}()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
