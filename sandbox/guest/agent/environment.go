package agent

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox/guest"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultTerm = "xterm"
)

// environment is what a process gets: the environment of the sandbox, what a
// login sets, and what the command asks for; later entries win.
func (a *Agent) environment(who user, cmd guest.Command) []string {
	env := newVariables(len(a.cfg.Env) + len(cmd.Env) + 6)
	env.set("PATH=" + defaultPath)
	for _, entry := range a.cfg.Env {
		env.set(entry)
	}
	if path := variable(env.list, "PATH"); a.cfg.Runtime != "" && path != "" {
		env.set("PATH=" + path + ":" + a.lentPrograms())
	}
	env.set("HOME=" + who.home)
	env.set("USER=" + who.name)
	env.set("LOGNAME=" + who.name)
	env.set("SHELL=" + who.shell)
	if cmd.TTY != nil {
		term := cmd.TTY.Term
		if term == "" {
			term = defaultTerm
		}
		env.set("TERM=" + term)
	}
	for _, entry := range cmd.Env {
		env.set(entry)
	}
	if cmd.Builtin != "" {
		env.set(builtinEnv + "=1")
	}
	return env.list
}

// variables is an environment without duplicates, in order of first mention.
type variables struct {
	list  []string
	index map[string]int
}

func newVariables(n int) *variables {
	return &variables{list: make([]string, 0, n), index: make(map[string]int, n)}
}

func (v *variables) set(entry string) {
	name, _, ok := strings.Cut(entry, "=")
	if !ok || name == "" {
		return
	}
	if i, ok := v.index[name]; ok {
		v.list[i] = entry
		return
	}
	v.index[name] = len(v.list)
	v.list = append(v.list, entry)
}

// variable returns the value of name in env.
func variable(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
