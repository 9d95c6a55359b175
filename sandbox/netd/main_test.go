package netd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

// The test program is the daemon as well, so that what is tested is a process
// of its own, with its own threads and its own death.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "netd" {
		run := func() error { return daemonMain(os.Args[2:]) }
		switch {
		case slices.Contains(os.Args, "--inside"):
			run = RunInside
		case slices.Contains(os.Args, "--probe"):
			run = func() error { return RunProbe(context.Background()) }
		}
		if err := run(); err != nil {
			Report(err)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "ensure" {
		// What a server of another user does.
		exe, err := os.Executable()
		if err == nil {
			ok, why := Probe(context.Background())
			fmt.Println(ok, why)
			_, err = Ensure(context.Background(), os.Args[2], exe, os.Args[3:]...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err, errors.Unwrap(err))
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := gvisortest.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func daemonMain(args []string) error {
	var cfg Config
	var forbid string
	fs := flag.NewFlagSet("netd", flag.ContinueOnError)
	fs.StringVar(&cfg.Dir, "dir", "", "")
	fs.BoolVar(&cfg.Takeover, "takeover", false, "")
	fs.TextVar(&cfg.Resolver, "resolver", netip.AddrPort{}, "")
	fs.StringVar(&forbid, "forbid", "", "")
	fs.IntVar(&cfg.Limits.Connections, "connections", 0, "")
	fs.IntVar(&cfg.Limits.Flows, "flows", 0, "")
	fs.DurationVar(&cfg.Limits.Handshake, "handshake", 0, "")
	fs.DurationVar(&cfg.Limits.Idle, "idle", 0, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	for f := range strings.FieldsSeq(forbid) {
		cfg.Forbidden = append(cfg.Forbidden, netip.MustParsePrefix(f))
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Ready = func() { Report(nil) }
	return Run(ctx, cfg)
}

// needRoot skips what needs namespaces.
func needRoot(t testing.TB) {
	t.Helper()
	if ok, why := Probe(context.Background()); !ok {
		t.Skip("sandboxes cannot be connected here: " + why)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
