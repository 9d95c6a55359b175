package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RuntimePath is Config.Runtime of PID 1. /dev is memory of the sandbox, is in
// no snapshot, and only its root can move what lies there.
const RuntimePath = "/dev/.sandgate"

// privateSockets is the directory in which users make directories of their own
// for sockets.
func (a *Agent) privateSockets() string {
	if a.cfg.Runtime == "" {
		return os.TempDir()
	}
	return filepath.Join(a.cfg.Runtime, "sockets")
}

// makeRuntime makes the directories of Config.Runtime that are missing.
func (a *Agent) makeRuntime() error {
	if a.cfg.Runtime == "" {
		return nil
	}
	if err := os.MkdirAll(a.cfg.Runtime, 0o755); err != nil {
		return err
	}
	err := os.Mkdir(a.privateSockets(), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(a.privateSockets(), 0o777|fs.ModeSticky)
}
