package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// stateDir is the folder all state of one server lives in, and the names of
// what is in it. Nothing outside of it is written, but for what gVisor and the
// kernel need elsewhere while a sandbox runs (cgroups, mounts).
type stateDir string

func (d stateDir) database() string   { return filepath.Join(string(d), "state.db") }
func (d stateDir) socket() string     { return filepath.Join(string(d), "sandgate.sock") }
func (d stateDir) lockFile() string   { return filepath.Join(string(d), "lock") }
func (d stateDir) hostKeys() string   { return filepath.Join(string(d), "hostkeys") }
func (d stateDir) layers() string     { return filepath.Join(string(d), "layers") }
func (d stateDir) guests() string     { return filepath.Join(string(d), "guests") }
func (d stateDir) executions() string { return filepath.Join(string(d), "executions") }
func (d stateDir) serverLog() string  { return filepath.Join(string(d), "server.log") }

// driverDir is where a driver keeps its sandboxes.
func (d stateDir) driverDir(driver string) string {
	return filepath.Join(string(d), "sandboxes", driver)
}

// maxSocketPath is what fits into a unix socket address on Linux.
const maxSocketPath = 107

// chooseState resolves the state folder: the flag, then SANDGATE_STATE, then
// the default of the user.
func chooseState(flag string, getenv func(string) string) (stateDir, error) {
	dir := flag
	if dir == "" {
		dir = getenv("SANDGATE_STATE")
	}
	if dir == "" {
		dir = defaultState(getenv)
	}
	if dir == "" {
		return "", fault.InvalidField("--state", "no home folder to keep the state in; give one")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "the state folder %s cannot be resolved", dir)
	}
	d := stateDir(abs)
	if len(d.socket()) > maxSocketPath {
		return "", fault.InvalidField("--state", "the path %s is too long for a socket in it (%d of at most %d bytes); choose a shorter one", abs, len(d.socket()), maxSocketPath)
	}
	return d, nil
}

func defaultState(getenv func(string) string) string {
	if os.Geteuid() == 0 {
		return "/var/lib/sandgate"
	}
	if x := getenv("XDG_STATE_HOME"); strings.HasPrefix(x, "/") {
		return filepath.Join(x, "sandgate")
	}
	if h := getenv("HOME"); h != "" {
		return filepath.Join(h, ".local", "state", "sandgate")
	}
	return ""
}

// prepare makes the folder and checks that it can be used.
func (d stateDir) prepare() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return d.unusable(err)
	}
	f, err := os.CreateTemp(string(d), ".probe-")
	if err != nil {
		return d.unusable(err)
	}
	f.Close()
	return os.Remove(f.Name())
}

func (d stateDir) unusable(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fault.Wrap(err, fault.Unavailable, "the state folder %s cannot be written by this user; give another with --state or SANDGATE_STATE", d)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "the disk that holds the state folder %s is full; free some space", d)
	case errors.Is(err, unix.EROFS):
		return fault.Wrap(err, fault.Unavailable, "the state folder %s is on a read-only file system; give another with --state", d)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, os.ErrExist):
		return fault.Wrap(err, fault.Unavailable, "the state folder %s is not a folder; give another with --state", d)
	}
	return fault.Wrap(err, fault.Unavailable, "the state folder %s cannot be used: %v", d, rootCause(err))
}

// rootCause is the innermost error: the system's own word.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// streamSecret returns the secret that signs the URLs of output streams. It is
// kept so that a URL outlives a restart.
func (d stateDir) streamSecret() ([]byte, error) {
	path := filepath.Join(string(d), "stream.key")
	if b, err := os.ReadFile(path); err == nil && len(b) == 32 {
		return b, nil
	}
	b := make([]byte, 32)
	rand.Read(b)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return nil, d.unusable(err)
	}
	return b, nil
}

// lock makes this process the one server of the state folder. The lock ends
// with the process, however it ends.
func (d stateDir) lock() (*os.File, error) {
	f, err := os.OpenFile(d.lockFile(), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, d.unusable(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 32)
		n, _ := f.ReadAt(pid, 0)
		f.Close()
		who := strings.TrimSpace(string(pid[:n]))
		if who != "" {
			who = " (pid " + who + ")"
		}
		return nil, fault.Wrap(err, fault.Busy, "a server%s is running on the state folder %s already; stop it with `sandgate stop` or give another folder with --state", who, d)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, d.unusable(err)
	}
	if _, err := f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0); err != nil {
		f.Close()
		return nil, d.unusable(err)
	}
	return f, nil
}
