package agent

import (
	"fmt"
	"os"
	"runtime/debug"
)

// SocketPath is where PID 1 listens inside a sandbox. /dev belongs to root and
// to this sandbox alone; an abstract socket would belong to the network
// namespace, which may be shared.
const SocketPath = "/dev/.sandgate.sock"

const usage = `usage: guest init [-socket path]     run as PID 1 of a sandbox
       guest relay [-socket path]    pass stdin and stdout to PID 1
       guest version
       guest sftp-server             serve sftp on stdin and stdout
       guest scp -t|-f …             serve scp on stdin and stdout
`

// Main is the guest program. It returns the exit status.
func Main(args []string) int {
	if len(args) > 0 {
		if run, ok := builtins[args[0]]; ok {
			return run(args[1:])
		}
	}
	socket := SocketPath
	if len(args) == 3 && args[1] == "-socket" {
		socket = args[2]
		args = args[:1]
	}
	if len(args) != 1 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	var err error
	switch args[0] {
	case "init":
		err = runInit(socket)
	case "relay":
		err = relay(socket, 0, 1)
	case "version":
		fmt.Fprintln(os.Stdout, version())
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sandgate guest: %s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// version is what the build recorded of itself.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}
