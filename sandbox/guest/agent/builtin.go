package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/scp"
	"github.com/sandgate/sandgate/sandbox/guest/sftpserver"
)

// builtins are the programs that the guest has of its own. They are processes
// of their users like any other: PID 1 starts its own program again.
var builtins = map[string]func(args []string) int{
	guest.BuiltinSFTP: runSFTP,
	guest.BuiltinSCP: func(args []string) int {
		return scp.Run(args, os.Stdin, os.Stdout, os.Stderr)
	},
}

// programName is what the guest program goes by; a binary that is more than
// the guest looks at it.
const programName = "guest"

// builtinEnv is set for builtins. Whoever finds it has been called as one, and
// would call itself: a Config.Program that is no guest must not do so for ever.
const builtinEnv = "SANDGATE_GUEST_BUILTIN"

// builtinImage is how a builtin is started.
func (a *Agent) builtinImage(cmd guest.Command) (image, *unrunnable) {
	if a.cfg.Program == "" {
		return image{}, &unrunnable{127, "this guest has no " + cmd.Builtin + " of its own"}
	}
	if os.Getenv(builtinEnv) != "" {
		return image{}, &unrunnable{126, "a guest that runs as a program of its own runs no other"}
	}
	if problem := runnable(a.cfg.Program); problem != nil {
		return image{}, &unrunnable{problem.code, "the guest program " + a.cfg.Program + ": " + problem.text}
	}
	return image{path: a.cfg.Program, argv: append([]string{programName, cmd.Builtin}, cmd.Args...)}, nil
}

// ownProgram is the path of the running program. Without /proc it is what PID 1
// was started as.
func ownProgram() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	path, _ := filepath.Abs(os.Args[0]) // and otherwise there are no builtins
	return path
}

// runSFTP serves sftp on the standard streams.
func runSFTP(args []string) int {
	if len(args) > 0 {
		fmt.Fprintln(os.Stderr, "sandgate sftp-server: takes no arguments")
		return 2
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	a := New(Config{})
	home := func(name string) (string, bool) {
		if name == "" {
			return os.Getenv("HOME"), true
		}
		who, err := a.lookupUser(name)
		return who.home, err == nil
	}
	in := struct{ io.Reader }{os.Stdin}
	if err := sftpserver.Serve(in, os.Stdout, home); err != nil {
		fmt.Fprintf(os.Stderr, "sandgate sftp-server: %v\n", err)
		return 1
	}
	return 0
}
