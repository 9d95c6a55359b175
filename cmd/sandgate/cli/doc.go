// Package cli is the sandgate program: its command tree, the server behind
// `serve`, and the parts the binary plays under other names.
//
// The tree runs in two places. In the process of a user it talks to a server,
// which it starts when none runs; in a session of the ssh gateway it talks to
// the server it is in, as the principal of the key. Which of the two it is,
// and what it may see of the world, is in [Env].
//
// # Parts
//
// The binary plays three parts, chosen by the name it was started under:
//
//   - "runsc…": a part of the embedded gVisor, started by the gvisor driver;
//   - "guest": PID 1 of a sandbox, where no separate guest was built in;
//   - anything else: sandgate itself.
//
// The choice comes before everything else, flags and logging included, because
// the first two run inside or around sandboxes and must find the process as
// the kernel made it.
package cli

import (
	"os"
	"path/filepath"

	"github.com/sandgate/sandgate/sandbox/guest/agent"
	"github.com/sandgate/sandgate/sandbox/gvisor"
)

// version is set by the build.
var version = "dev"

// Main plays the part the process was started for and does not return.
func Main() {
	switch {
	case gvisor.IsRunsc(os.Args):
		gvisor.Main()
	case filepath.Base(os.Args[0]) == "guest":
		os.Exit(agent.Main(os.Args[1:]))
	default:
		os.Exit(mainCommand())
	}
}
