package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// finding is one line of the doctor.
type finding struct {
	Subject string `json:"subject"`
	Status  string `json:"status"` // "ok", "limited" (works without it), "missing" (an engine cannot be used)
	Detail  string `json:"detail,omitempty"`
}

func newDoctorCommand() *cobra.Command {
	var state string
	var fix, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what works on this machine, and clean what a crash left",
		Long: `Check this machine: what each engine can and cannot do here and what would
help, the tools sandgate calls, the state folder, and what a crash may have left
behind (mounts, cgroups, namespaces, processes). With --fix the latter is
removed; a start of the server does the same.`,
		Example: "  sandgate doctor\n  sandgate doctor --fix\n  sandgate doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := chooseState(state, os.Getenv)
			if err != nil {
				return err
			}
			report := examine(cmd.Context(), d, fix)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				if err := enc.Encode(map[string]any{"findings": report}); err != nil {
					return err
				}
			} else {
				printFindings(cmd.OutOrStdout(), report)
			}
			if !anyEngine(report) {
				return fault.New(fault.Unavailable, "no engine can run sandboxes on this machine; the lines above say why")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "state folder to examine")
	cmd.Flags().BoolVar(&fix, "fix", false, "remove what a crash left behind")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// examine looks at everything and changes nothing, but with fix.
func examine(ctx context.Context, d stateDir, fix bool) []finding {
	report := []finding{machine()}
	for _, engine := range []string{"gvisor", "docker"} {
		report = append(report, examineEngine(ctx, engine, d)...)
	}
	for _, t := range []struct{ tool, why string }{
		{"ssh", "`sandgate ssh` and `sandgate demo` open sandboxes with it"},
		{"mmdebstrap", "base:latest is made with it where no image registry answers (apt-get install mmdebstrap)"},
		{"mkfs.ext4", "disk limits of the gvisor engine need it (apt-get install e2fsprogs)"},
	} {
		f := finding{Subject: "tool " + t.tool, Status: "ok"}
		path, err := exec.LookPath(t.tool)
		if f.Detail = path; err != nil {
			f.Status, f.Detail = "limited", "not installed: "+t.why
		}
		report = append(report, f)
	}
	return append(report, examineState(ctx, d, fix)...)
}

func machine() finding {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail on memory of our own
	return finding{Subject: "machine", Status: "ok", Detail: fmt.Sprintf("Linux %s, %s, %d cores, %s of memory, user id %d",
		unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU(), sandbox.FormatBytes(hostMemory()&^(1<<20-1)), os.Geteuid())}
}

// examineEngine reports what one engine can do here.
func examineEngine(ctx context.Context, engine string, d stateDir) []finding {
	head := finding{Subject: "engine " + engine}
	cfg := serverConfig{engine: engine, state: d, log: slog.New(slog.DiscardHandler)}
	network, aboutNetwork := newNetwork(ctx, cfg)
	drv, err := newDriver(cfg, network)
	if err != nil {
		head.Status, head.Detail = "missing", fault.From(err).Error()
		return []finding{head}
	}
	defer drv.Close()
	caps, err := drv.Capabilities(ctx)
	if err != nil {
		head.Status, head.Detail = "missing", fault.From(err).Error()
		return []finding{head}
	}
	head.Status, head.Detail = "ok", strings.TrimSpace(caps.Version+" ("+caps.Mode+")")
	report := []finding{head}
	for _, feature := range driver.Features() {
		f := finding{Subject: "  " + feature, Status: "ok", Detail: caps.Support[feature].Reason}
		if feature == driver.FeatureNetwork && network == nil {
			f.Detail = aboutNetwork
		} else if feature == driver.FeatureNetwork && caps.Support[feature].OK {
			f.Detail += "; " + aboutNetwork
		}
		if !caps.Support[feature].OK {
			f.Status = "limited"
		}
		report = append(report, f)
	}
	return report
}

// examineState reports on the state folder and on what a crash left.
func examineState(ctx context.Context, d stateDir, fix bool) []finding {
	f := finding{Subject: "state folder", Status: "ok", Detail: string(d)}
	if _, err := os.Stat(string(d)); err != nil {
		f.Detail += " (not made yet)"
		return []finding{f}
	}
	lock, err := d.lock()
	if fault.Is(err, fault.Busy) {
		f.Detail += ", a server runs on it and has cleaned up at its start"
		return []finding{f}
	}
	if err != nil {
		f.Status, f.Detail = "limited", fault.From(err).Error()
		return []finding{f}
	}
	report := []finding{f}
	if fix {
		lock.Close() // the server that is made for the cleaning takes it again
		return append(report, cleanState(ctx, d)...)
	}
	defer lock.Close()
	for _, engine := range []string{"gvisor", "docker"} {
		drv, err := newDriver(serverConfig{engine: engine, state: d, log: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			continue
		}
		if _, serr := os.Stat(d.driverDir(engine)); serr != nil {
			drv.Close()
			continue // that engine was never used here
		}
		if c, ok := drv.(driver.Cleaner); ok {
			left, err := c.Leftovers(ctx, false)
			for _, l := range left {
				report = append(report, finding{Subject: "leftover", Status: "limited", Detail: l + " (remove with --fix)"})
			}
			if err != nil {
				report = append(report, finding{Subject: "leftovers of " + engine, Status: "limited", Detail: fault.From(err).Error()})
			}
		}
		drv.Close()
	}
	return report
}

// cleanState does what a start of the server does: reconcile and clean.
func cleanState(ctx context.Context, d stateDir) []finding {
	var report []finding
	for _, engine := range []string{"gvisor", "docker"} {
		if _, err := os.Stat(d.driverDir(engine)); err != nil {
			continue
		}
		s, err := newServer(ctx, serverConfig{state: d, engine: engine, log: slog.New(slog.DiscardHandler), notice: func(format string, args ...any) {
			report = append(report, finding{Subject: engine, Status: "ok", Detail: fmt.Sprintf(format, args...)})
		}})
		if err != nil {
			report = append(report, finding{Subject: "clean " + engine, Status: "limited", Detail: fault.From(err).Error()})
			continue
		}
		for _, l := range s.reconciled.Leftovers {
			report = append(report, finding{Subject: "removed", Status: "ok", Detail: l})
		}
		s.Close()
	}
	return report
}

func anyEngine(report []finding) bool {
	for _, f := range report {
		if strings.HasPrefix(f.Subject, "engine ") && f.Status == "ok" {
			return true
		}
	}
	return false
}

func printFindings(w io.Writer, report []finding) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range report {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Status, f.Subject, f.Detail)
	}
	tw.Flush()
}
