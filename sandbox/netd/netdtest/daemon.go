// Package netdtest helps tests of drivers that connect sandboxes with a real
// network daemon.
//
// The test program is the daemon too: its TestMain begins with IsDaemon. The
// daemon runs on the machine of a World, which has an internet of its own, so
// that nothing of a test leaves this host and nothing of the host is changed.
// What is reached, and what must not be, are scripts that any sandbox with
// busybox can run.
package netdtest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/netd"
)

// IsDaemon reports whether this process was started as a daemon, or as what
// one starts. Then TestMain calls Daemon and nothing else.
func IsDaemon() bool { return len(os.Args) > 1 && os.Args[1] == "netd" }

// Daemon does what this process was started for, and ends it.
func Daemon() {
	if err := run(os.Args[2:]); err != nil {
		netd.Report(err)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(args []string) error {
	var cfg netd.Config
	var inside, probe bool
	fs := flag.NewFlagSet("netd", flag.ContinueOnError)
	fs.StringVar(&cfg.Dir, "dir", "", "")
	fs.BoolVar(&cfg.Takeover, "takeover", false, "")
	fs.TextVar(&cfg.Resolver, "resolver", netip.AddrPort{}, "")
	fs.BoolVar(&inside, "inside", false, "")
	fs.BoolVar(&probe, "probe", false, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	switch {
	case inside:
		return netd.RunInside()
	case probe:
		return netd.RunProbe(ctx)
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Ready = func() { netd.Report(nil) }
	return netd.Run(ctx, cfg)
}
