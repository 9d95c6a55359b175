package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// check refuses what no process can be started from.
func check(cmd guest.Command) error {
	switch {
	case !wire.Word(cmd.ID, wire.MaxID):
		return fault.InvalidField("id", "a process id has 1 to %d visible characters", wire.MaxID)
	case len(cmd.Label) > wire.MaxLabel:
		return fault.InvalidField("label", "at most %d bytes are allowed", wire.MaxLabel)
	case len(cmd.Args) > wire.MaxArgs:
		return fault.InvalidField("args", "at most %d arguments are allowed", wire.MaxArgs)
	case cmd.Builtin != "" && builtins[cmd.Builtin] == nil:
		return fault.InvalidField("builtin", "there is no %q", wire.Printable(cmd.Builtin, 32))
	case cmd.Builtin != "" && cmd.TTY != nil:
		return fault.InvalidField("tty", "%s has no terminal", cmd.Builtin)
	case cmd.Builtin != "" && cmd.Script != "":
		return fault.InvalidField("script", "give either a builtin or a script")
	case len(cmd.Args) > 0 && cmd.Script != "":
		return fault.InvalidField("script", "give either arguments or a script")
	case len(cmd.Env) > wire.MaxEnv:
		return fault.InvalidField("env", "at most %d variables are allowed", wire.MaxEnv)
	case len(cmd.Dir) >= wire.MaxPath || strings.ContainsRune(cmd.Dir, 0):
		return fault.InvalidField("dir", "not a path")
	case len(cmd.User) > wire.MaxUserName:
		return fault.InvalidField("user", "at most %d bytes are allowed", wire.MaxUserName)
	case strings.ContainsRune(cmd.Script, 0):
		return fault.InvalidField("script", "must not contain a zero byte")
	}
	for _, arg := range cmd.Args {
		if strings.ContainsRune(arg, 0) {
			return fault.InvalidField("args", "must not contain a zero byte")
		}
	}
	for _, entry := range cmd.Env {
		if i := strings.IndexByte(entry, '='); i < 1 || strings.ContainsRune(entry, 0) {
			return fault.InvalidField("env", "%q is not NAME=value", wire.Printable(entry, 64))
		}
	}
	if cmd.TTY != nil && strings.ContainsRune(cmd.TTY.Term, 0) {
		return fault.InvalidField("tty.term", "must not contain a zero byte")
	}
	return nil
}

// title is what a person calls the command.
func title(cmd guest.Command) string {
	s := cmd.Script
	if len(cmd.Args) > 0 || cmd.Builtin != "" {
		s = strings.TrimSpace(cmd.Builtin + " " + strings.Join(cmd.Args, " "))
	}
	if s == "" {
		s = "shell"
	}
	return wire.Printable(s, wire.MaxTitle)
}

// directory resolves the working directory. The workspace is made again if
// somebody has deleted it: a sandbox that nobody can enter helps nobody.
func (a *Agent) directory(dir string) (string, error) {
	if dir == "" {
		if err := a.makeWorkspace(); err != nil {
			return "/", nil
		}
		return a.cfg.Workspace, nil
	}
	path := a.resolve(dir)
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "working directory %s: %s", wire.Printable(path, 512), reason(err))
	}
	return path, nil
}

// resolve makes a path absolute.
func (a *Agent) resolve(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.cfg.Workspace, path)
	}
	return filepath.Clean(path)
}

// makeWorkspace makes the workspace. Any user of the sandbox may write to it,
// as to /tmp, because any of them may be the one who works here.
func (a *Agent) makeWorkspace() error {
	if info, err := os.Stat(a.cfg.Workspace); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(a.cfg.Workspace, 0o755); err != nil {
		return err
	}
	return os.Chmod(a.cfg.Workspace, 0o777|os.ModeSticky)
}
