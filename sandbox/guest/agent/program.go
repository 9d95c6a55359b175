package agent

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// image is a program to run.
type image struct {
	path string
	argv []string
}

// unrunnable is what becomes of a command that cannot be run: the exit code a
// shell would give and the words for it.
type unrunnable struct {
	code int
	text string
}

// shellArgs are the arguments of a shell: for a script, or as a login shell.
func shellArgs(shell, script string) []string {
	name := filepath.Base(shell)
	if script != "" {
		return []string{name, "-c", script}
	}
	return []string{"-" + name}
}

// loginShell is the first of the user's shell, bash and sh that exists. The
// programs that keep an account of a system service from logging in guard
// nothing in a sandbox, whose owner is root of it.
func loginShell(shell string) (string, *unrunnable) {
	if name := filepath.Base(shell); name == "nologin" || name == "false" {
		shell = ""
	}
	for _, path := range []string{shell, "/bin/bash", "/bin/sh"} {
		if path != "" && runnable(path) == nil {
			return path, nil
		}
	}
	return "", &unrunnable{127, "there is no shell in this sandbox, neither /bin/bash nor /bin/sh; give a program to run"}
}

// lookPath finds a command as a shell does, in the PATH that the command
// itself will see and relative to the directory it will run in.
func lookPath(argv []string, path, dir string) (image, *unrunnable) {
	name := argv[0]
	shown := wire.Printable(name, 256)
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(name) {
			full = filepath.Join(dir, name)
		}
		if problem := runnable(full); problem != nil {
			return image{}, &unrunnable{problem.code, shown + ": " + problem.text}
		}
		return image{full, argv}, nil
	}
	found := unrunnable{127, "command not found"}
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(dir, entry)
		}
		full := filepath.Join(entry, name)
		problem := runnable(full)
		if problem == nil && name != "" {
			return image{full, argv}, nil
		}
		if problem != nil && problem.code == 126 && problem.text != isDirectory {
			found = *problem
		}
	}
	return image{}, &unrunnable{found.code, shown + ": " + found.text}
}

const isDirectory = "is a directory"

// runnable says why the file at path cannot be run, as far as its mode tells.
func runnable(path string) *unrunnable {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return &unrunnable{127, "no such file or directory"}
	case err != nil:
		return &unrunnable{126, reason(err)}
	case info.IsDir():
		return &unrunnable{126, isDirectory}
	case info.Mode()&0o111 == 0:
		return &unrunnable{126, "permission denied"}
	}
	return nil
}
