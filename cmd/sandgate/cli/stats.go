package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) statsCommand() *cobra.Command {
	var start, end, org string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "stats [sandbox] [flags]", Short: "Show what sandboxes use",
		Long: `Show what one sandbox uses now and has used since it was made, or, without one,
what all of yours used over a time; of a server you are admin of, everybody's.
Times are written as 2027-01-31T12:00:00Z, or as how long ago: 24h, 7d.`,
		Example: `  sandgate stats
  sandgate stats --start 7d
  sandgate stats --start 2026-04-01T00:00:00Z --end 2026-04-22T00:00:00Z
  sandgate stats dev --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused(cmd, "%q is one argument too many; usage: %s", args[1], cmd.UseLine())
			}
			return atLeast(slices.Repeat([]string{argSandbox}, len(args))...)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && start+end+org != "" {
				return usagef("--start, --end and --org-id are for all sandboxes, not for one")
			}
			from, err := a.when("start", start)
			if err != nil {
				return err
			}
			to, err := a.when("end", end)
			if err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if len(args) == 1 {
					u, err := c.Usage(ctx, args[0])
					if err != nil {
						return err
					}
					return a.printUsage(u, asJSON)
				}
				st, err := c.Stats(ctx, org, from, to)
				if err != nil {
					return err
				}
				return a.printStats(st, asJSON)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&start, "start", "", "from then (default: from the first record on)")
	fl.StringVar(&end, "end", "", "until then (default: now)")
	fl.StringVar(&org, "org-id", "", "only those of an organization")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// when reads a time, or how long ago it was; empty is the zero time.
func (a *app) when(flag, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return t, nil
	}
	d, err := sandbox.ParseDuration(value)
	if err != nil {
		return time.Time{}, flagError(flag, fmt.Errorf("%q is not a time; write it as 2027-01-31T12:00:00Z, or how long ago it was: 24h, 7d", value))
	}
	return a.Now().Add(-d), nil
}

func milliseconds(ms int64) string {
	return sandbox.FormatDuration(time.Duration(ms) * time.Millisecond)
}

func (a *app) printUsage(u api.Usage, asJSON bool) error {
	if asJSON {
		return a.printJSON(u)
	}
	of := func(now string, limit string) string {
		if limit == "" {
			return now
		}
		return now + " of " + limit
	}
	limits := api.Resources{}
	if u.Resources != nil {
		limits = *u.Resources
	}
	disk := "not known"
	if u.DiskBytes >= 0 {
		disk = of(size(u.DiskBytes), limits.Disk)
	}
	return describe(a.Stdout, []pair{
		{"sandbox", u.SandboxID}, {"memory", of(size(u.MemoryBytes), limits.Memory)}, {"disk", disk},
		{"processes", strconv.FormatInt(u.Processes, 10)}, {"cpu time", milliseconds(u.CPUTimeMs)}, {"cpu limit", limits.CPU},
		{"network in", size(u.NetworkIngress)}, {"network out", size(u.NetworkEgress)}, {"up for", milliseconds(u.UptimeMs)},
	}, nil)
}

func (a *app) printStats(st api.Stats, asJSON bool) error {
	if asJSON {
		return a.printJSON(st)
	}
	var statuses []string
	for _, s := range slices.Sorted(maps.Keys(st.ByStatusNow)) {
		statuses = append(statuses, fmt.Sprintf("%d %s", st.ByStatusNow[s], s))
	}
	span := "until " + st.End.Format(time.RFC3339)
	if !st.Start.IsZero() {
		span = st.Start.Format(time.RFC3339) + " to " + st.End.Format(time.RFC3339)
	}
	return describe(a.Stdout, []pair{
		{"time", span}, {"sandboxes", strconv.Itoa(st.Sandboxes)}, {"of them now", strings.Join(statuses, ", ")},
		{"executions", strconv.Itoa(st.Executions)}, {"jobs", strconv.Itoa(st.Jobs)},
		{"cpu time", milliseconds(st.CPUTimeMs)}, {"memory", fmt.Sprintf("%.1f GiB hours", st.MemoryByteSec/(1<<30)/3600)},
		{"network in", size(st.NetworkIngress)}, {"network out", size(st.NetworkEgress)}, {"up for", milliseconds(st.UptimeMs)},
		{"memory now", size(st.MemoryBytesNow)}, {"disk now", size(st.DiskBytesNow)},
	}, nil)
}
