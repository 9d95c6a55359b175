package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "job", Aliases: []string{"jobs"}, Short: "Run commands in the background",
		Long: `Run commands in the background of a sandbox. Jobs run side by side, go on when
whoever started them is gone, outlive the server, and keep their output.`,
		Example: `  sandgate job create dev -- npm run build
  sandgate job list dev
  sandgate job logs dev job_4k2m7qa3bc5d --follow
  sandgate job destroy dev job_4k2m7qa3bc5d`,
	}
	a.group(cmd)
	cmd.AddCommand(a.jobCreateCommand(), a.jobListCommand(), a.jobGetCommand(), a.jobDestroyCommand(), a.jobLogsCommand())
	return cmd
}

// The arguments of commands about one job.
const (
	argSandbox = "the id or name of a sandbox"
	argJob     = "the id of a job; see: sandgate job list"
)

func (a *app) jobCreateCommand() *cobra.Command {
	var r api.JobRequest
	var env []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create <sandbox> [flags] -- <command>", Aliases: []string{"new"}, Short: "Start a command in the background",
		Long: `Start a command in the background of a sandbox and print the id of the job. It
has no standard input; what it prints is kept.`,
		Example: `  sandgate job create dev -- bun run build
  id=$(sandgate job create dev -- npm install) && sandgate job logs dev "$id" -f`,
		Args: atLeast(argSandbox, "the command to run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Command = args[1:]
			var err error
			if r.Env, err = assignments("env", env); err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				j, err := c.CreateJob(ctx, args[0], r)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(j)
				}
				_, err = fmt.Fprintln(a.Stdout, clean(j.JobID))
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&env, "env", nil, "environment variable KEY=VALUE (repeatable)")
	fl.StringVar(&r.Dir, "dir", "", "folder to run it in (default /workspace)")
	fl.StringVar(&r.User, "user", "", "user of the sandbox to run it as (default root)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// assignments reads the values KEY=VALUE of a flag; no values are nil.
func assignments(flag string, values []string) (map[string]string, error) {
	var env map[string]string
	for _, kv := range values {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, flagError(flag, fmt.Errorf("%q is not KEY=VALUE", kv))
		}
		if env == nil {
			env = map[string]string{}
		}
		env[k] = v
	}
	return env, nil
}

func (a *app) jobListCommand() *cobra.Command {
	var limit, offset int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list <sandbox> [flags]", Aliases: []string{"ls"}, Short: "List the jobs of a sandbox, newest first",
		Example: "  sandgate job list dev\n  sandgate job list dev --limit 10",
		Args:    exactly(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			page := pageFlags{limit: limit, offset: offset}
			if err := page.check(); err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.Jobs(ctx, args[0], limit, offset)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				if list.Total == 0 {
					a.note("no jobs; start one with: sandgate job create %s -- <command>", clean(args[0]))
					return nil
				}
				t := table{header: []string{"ID", "STATUS", "EXIT", "STARTED", "COMMAND"}, style: a.statusColumn(1)}
				for _, j := range list.Jobs {
					t.add(j.JobID, j.Status, jobExit(j), a.age(j.StartedAt), shorten(strings.Join(j.Command, " "), 60))
				}
				if err := t.write(a.Stdout); err != nil {
					return err
				}
				a.noteMore(offset, len(list.Jobs), list.Total)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most results, up to 100")
	cmd.Flags().IntVar(&offset, "offset", 0, "results to skip")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// statusColumn colours a column of a table that holds a status.
func (a *app) statusColumn(column int) func(int, string) string {
	return func(i int, cell string) string {
		if i == column {
			return a.statusStyle(cell)
		}
		return cell
	}
}

// noteMore says how to get the next page, if there is one.
func (a *app) noteMore(offset, shown, total int) {
	if next := offset + shown; next < total {
		a.note("%d of %d; for the next: --offset %d", shown, total, next)
	}
}

func jobExit(j api.Job) string {
	if j.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(*j.ExitCode)
}

func (a *app) jobGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <sandbox> <job> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a job",
		Example: "  sandgate job get dev job_4k2m7qa3bc5d --json | jq -r .status",
		Args:    exactly(argSandbox, argJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				j, err := c.Job(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return a.printJob(j, asJSON)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printJob(j api.Job, asJSON bool) error {
	if asJSON {
		return a.printJSON(j)
	}
	pairs := []pair{
		{"id", j.JobID}, {"sandbox", j.SandboxID}, {"status", j.Status}, {"error", j.Error},
		{"command", strings.Join(j.Command, " ")}, {"exit code", jobExit(j)}, {"created", a.moment(j.CreatedAt)},
	}
	if !j.StartedAt.IsZero() {
		pairs = append(pairs, pair{"started", a.moment(j.StartedAt)})
	}
	if !j.CompletedAt.IsZero() {
		pairs = append(pairs, pair{"completed", a.moment(j.CompletedAt)})
	}
	if j.OutputTruncated {
		pairs = append(pairs, pair{"output truncated", "yes: only its beginning was kept"})
	}
	pairs = append(pairs, pair{"stdout", j.StdoutStreamURL}, pair{"stderr", j.StderrStreamURL})
	return describe(a.Stdout, pairs, a.statusPair)
}

// statusPair colours the status in a description.
func (a *app) statusPair(name, value string) string {
	if name == "status" {
		return a.statusStyle(value)
	}
	return value
}

func (a *app) jobDestroyCommand() *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use: "destroy <sandbox> <job> [flags]", Aliases: []string{"stop", "delete", "rm", "del", "remove", "terminate"}, Short: "Stop a job",
		Long: `Stop a job and wait until it has ended: with SIGTERM, and with SIGKILL if it has
not ended after ten seconds. Its record and its output stay.`,
		Example: `  sandgate job destroy dev job_4k2m7qa3bc5d
  sandgate job destroy dev job_4k2m7qa3bc5d --force`,
		Args: exactly(argSandbox, argJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				j, err := c.StopJob(ctx, args[0], args[1], force)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(j)
				}
				_, err = fmt.Fprintf(a.Stdout, "%s is %s\n", clean(j.JobID), clean(j.Status))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill it at once")
	jsonFlag(cmd, &asJSON)
	return cmd
}
