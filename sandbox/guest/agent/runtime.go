package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/guest"
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
	if err := a.lendPrograms(); err != nil {
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

// lentPrograms is the directory of programs for sandboxes that have none of
// their own. It is the last in the PATH of every process.
func (a *Agent) lentPrograms() string { return filepath.Join(a.cfg.Runtime, "bin") }

// lendPrograms makes scp a command, so that shells find it as they find any
// other.
func (a *Agent) lendPrograms() error {
	if err := os.Mkdir(a.lentPrograms(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	quoted := "'" + strings.ReplaceAll(a.cfg.Program, "'", `'\''`) + "'"
	script := "#!/bin/sh\nexec " + quoted + " " + guest.BuiltinSCP + " \"$@\"\n"
	path := filepath.Join(a.lentPrograms(), guest.BuiltinSCP)
	if old, err := os.ReadFile(path); err == nil && string(old) == script {
		return nil
	}
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}
