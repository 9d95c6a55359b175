package sshgw

import (
	"strings"
	"unicode/utf8"
)

// DefaultAcceptEnv returns the names of the environment variables that clients
// may set: language, colour and time zone, and the one git needs to speak its
// newer protocol.
func DefaultAcceptEnv() []string {
	return []string{"LANG", "LANGUAGE", "LC_*", "COLORTERM", "NO_COLOR", "TZ", "GIT_PROTOCOL"}
}

// Bounds of the environment of one session.
const (
	maxEnvCount = 64
	maxEnvName  = 64
	maxEnvValue = 8 << 10
	maxEnvBytes = 32 << 10
)

// neverEnv change what a program is, not how it looks; no configuration lets
// a client set them.
var neverEnv = []string{
	"LD_*", "DYLD_*", "GCONV_PATH", "BASH_ENV", "BASH_FUNC*", "ENV", "IFS", "PATH", "SHELLOPTS", "BASHOPTS", "PS4",
	"HOME", "USER", "LOGNAME", "SHELL", "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT",
}

// environment collects what a client sets. Not safe for concurrent use.
type environment struct {
	accept []string
	vars   []string // "NAME=value"
	bytes  int
}

// set takes a variable, or reports that it may not be set.
func (e *environment) set(name, value string) bool {
	if !isEnvName(name) || len(value) > maxEnvValue || strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value) {
		return false
	}
	if matches(neverEnv, name) || !matches(e.accept, name) {
		return false
	}
	entry := name + "=" + value
	for i, v := range e.vars {
		if strings.HasPrefix(v, name+"=") {
			if e.bytes-len(v)+len(entry) > maxEnvBytes {
				return false
			}
			e.bytes += len(entry) - len(v)
			e.vars[i] = entry
			return true
		}
	}
	if len(e.vars) >= maxEnvCount || e.bytes+len(entry) > maxEnvBytes {
		return false
	}
	e.vars = append(e.vars, entry)
	e.bytes += len(entry)
	return true
}

func isEnvName(s string) bool {
	if s == "" || len(s) > maxEnvName || '0' <= s[0] && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && s[i] != '_' {
			return false
		}
	}
	return true
}

// matches reports whether one of the patterns, which may end in *, is name.
func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		prefix, wild := strings.CutSuffix(p, "*")
		if p == name || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
