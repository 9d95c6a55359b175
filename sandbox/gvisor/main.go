package gvisor

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

const (
	runscName    = "runsc"        // argv[0] of a plain runsc
	launcherName = "runsc-launch" // argv[0] of our launcher
)

// IsRunsc reports whether the program was started as a part of gVisor and
// must call Main before it does anything else. gVisor re-executes
// /proc/self/exe under names that begin with "runsc", and in one place under
// that path itself; it parses the arguments again, so argv[0] is the only
// place where the role can be told.
func IsRunsc(args []string) bool {
	if len(args) == 0 {
		return false
	}
	return args[0] == "/proc/self/exe" || strings.HasPrefix(filepath.Base(args[0]), runscName)
}

// Main runs this process as the part of gVisor that os.Args asks for. It does
// not return.
func Main() {
	collectLater()
	if filepath.Base(os.Args[0]) == launcherName {
		launch()
	}
	runscMain()
}

// collectLater puts off the garbage collector until the sandbox is up: the
// processes of a start make little garbage, and collecting it is a fifth of
// the start's CPU time. Those that stay then collect once and give back what
// they do not need, which also makes an idle sandbox smaller.
func collectLater() {
	const (
		bootTime = 2 * time.Second
		whenBoot = 800 // percent: the first collection comes at 32 MiB
		normal   = 100
	)
	debug.SetGCPercent(whenBoot)
	time.AfterFunc(bootTime, func() {
		debug.SetGCPercent(normal)
		debug.FreeOSMemory()
	})
}

// runscMain is runsc with the commands that sandboxes need and no others:
// without the remote checkpoint helper, GPU and tracing support the program is
// 47 MB smaller.
func runscMain() {
	const group = ""
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          group,
		new(cmd.Create):       group,
		new(cmd.Start):        group,
		new(cmd.Restore):      group,
		new(cmd.Checkpoint):   group,
		new(cmd.Delete):       group,
		new(cmd.Gofer):        group,
		new(bootCommand):      group,
		new(sentrycmd.Umount): group,
	}, []subcommands.Command{})
	os.Exit(0)
}
