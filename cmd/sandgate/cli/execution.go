package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) executionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "execution", Short: "Look at commands that ran",
		Long:    "Look at the commands that were run with exec and run: how they ended, and what they printed.",
		Example: "  sandgate execution list dev\n  sandgate execution get exec_4k2m7qa3bc5d",
	}
	a.group(cmd)
	cmd.AddCommand(a.executionListCommand(), a.executionGetCommand())
	return cmd
}

func (a *app) executionListCommand() *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list <sandbox> [flags]", Aliases: []string{"ls"}, Short: "List the commands that ran in a sandbox",
		Example: "  sandgate execution list dev --limit 5",
		Args:    exactly("the id or name of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 1000 {
				return usagef("--limit: must be 1 to 1000")
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Executions(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(list)
			}
			if len(list.Executions) == 0 {
				a.note("nothing has run in it; run something with: sandgate exec %s -- <command>", clean(args[0]))
				return nil
			}
			t := table{header: []string{"ID", "STATUS", "EXIT", "DURATION", "STARTED", "COMMAND"}}
			t.style = func(column int, cell string) string {
				if column == 1 {
					return a.statusStyle(cell)
				}
				return cell
			}
			for _, x := range list.Executions {
				exit, took := executionEnd(x)
				t.add(x.ExecutionID, x.Status, exit, took, a.age(x.StartedAt), shorten(strings.Join(x.Command, " "), 60))
			}
			return t.write(a.Stdout)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most results, up to 1000")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) executionGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <execution> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a command that ran",
		Example: "  sandgate execution get exec_4k2m7qa3bc5d --json",
		Args:    exactly("the id of an execution"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			x, err := c.Execution(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(x)
			}
			exit, took := executionEnd(x)
			truncated := ""
			if x.OutputTruncated {
				truncated = "yes: only its beginning was kept"
			}
			return describe(a.Stdout, []pair{
				{"id", x.ExecutionID}, {"sandbox", x.SandboxID}, {"status", x.Status}, {"error", x.Error},
				{"command", strings.Join(x.Command, " ")}, {"exit code", exit}, {"duration", took},
				{"started", a.moment(x.StartedAt)}, {"output truncated", truncated},
				{"stdout", x.StdoutStreamURL}, {"stderr", x.StderrStreamURL},
			}, func(name, value string) string {
				if name == "status" {
					return a.statusStyle(value)
				}
				return value
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// executionEnd is the exit code and the duration of a command, "-" for what it
// does not have yet.
func executionEnd(x api.Execution) (exit, took string) {
	exit, took = "-", "-"
	if x.ExitCode != nil {
		exit = strconv.Itoa(*x.ExitCode)
	}
	if x.DurationMs != nil {
		took = sandbox.FormatDuration(time.Duration(*x.DurationMs) * time.Millisecond)
	}
	return exit, took
}

// shorten cuts s to at most n characters.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
