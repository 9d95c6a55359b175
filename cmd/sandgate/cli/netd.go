package cli

import (
	"log/slog"
	"net/netip"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/netd"
)

// newNetdCommand is the network daemon, which netd.Ensure starts. Nobody types
// it, so it is not in the help.
func newNetdCommand() *cobra.Command {
	var cfg netd.Config
	var resolver string
	var forbidden []string
	var inside, probe bool
	cmd := &cobra.Command{
		Use:    "netd",
		Hidden: true,
		Short:  "Run the network daemon (the server starts it by itself)",
		Long: `Run the daemon through which sandboxes reach the network. The server starts it
when a sandbox needs one; it outlives the server, so that connections do.`,
		Example: "  sandgate netd --dir /var/lib/sandgate/netd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case inside:
				return netd.RunInside()
			case probe:
				return netd.RunProbe(cmd.Context())
			}
			err := runNetd(cmd, cfg, resolver, forbidden)
			if err != nil {
				netd.Report(err)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&cfg.Dir, "dir", "", "state folder of the daemon")
	fl.BoolVar(&cfg.Takeover, "takeover", false, "go on with the connections of the daemon that runs")
	fl.BoolVar(&inside, "inside", false, "make the router of the sandbox this runs in (the daemon of a plain user does that)")
	fl.BoolVar(&probe, "probe", false, "try whether sandboxes can be connected here")
	fl.StringVar(&resolver, "resolver", "", "address and port of the name server to ask (default: that of this machine)")
	fl.StringArrayVar(&forbidden, "forbid", nil, "a network that no sandbox may reach, such as the public address of this machine")
	return cmd
}

func runNetd(cmd *cobra.Command, cfg netd.Config, resolver string, forbidden []string) error {
	if cfg.Dir == "" {
		return fault.InvalidField("--dir", "is missing")
	}
	var err error
	if resolver != "" {
		if cfg.Resolver, err = netip.ParseAddrPort(resolver); err != nil {
			return fault.InvalidField("--resolver", "%q is not an address with a port, such as 9.9.9.9:53", resolver)
		}
	}
	for _, f := range forbidden {
		p, err := netip.ParsePrefix(f)
		if err != nil {
			return fault.InvalidField("--forbid", "%q is not a network, such as 203.0.113.7/32", f)
		}
		cfg.Forbidden = append(cfg.Forbidden, p.Masked())
	}
	// A terminal that closes is not the end of everybody's connections.
	signal.Ignore(unix.SIGHUP, unix.SIGINT)
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM)
	defer stop()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Ready = func() { netd.Report(nil) }
	return netd.Run(ctx, cfg)
}
