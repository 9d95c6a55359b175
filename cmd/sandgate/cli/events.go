package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) eventsCommand() *cobra.Command {
	var limit int
	var reverse, follow, asJSON bool
	cmd := &cobra.Command{
		Use: "events [sandbox] [flags]", Short: "Show what has happened to a sandbox",
		Long: `Show the lifecycle of a sandbox, the oldest event first: who made it, when it
started, what ran in it, and how it ended. Without a sandbox, of all of yours.
With --follow it shows what happens from now on, until Ctrl-C; with --json as one
line for each event.`,
		Example: `  sandgate events dev
  sandgate events dev --reverse --limit 10
  sandgate events --follow --json | jq -r .type`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly(argSandbox)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 100 {
				return usagef("--limit: must be 1 to 100")
			}
			ref := ""
			if len(args) > 0 {
				ref = args[0]
			}
			if follow && (reverse || cmd.Flags().Changed("limit")) {
				return usagef("--follow shows what happens from now on; leave out --reverse and --limit")
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if follow {
					return a.followEvents(ctx, c, ref, asJSON)
				}
				list, err := c.Events(ctx, ref, limit, reverse)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				t := table{header: []string{"SEQ", "TIME", "EVENT", "BY", "DETAILS"}}
				if ref == "" {
					t.header = append([]string{"SANDBOX"}, t.header...)
				}
				for _, e := range list.Events {
					row := []string{strconv.FormatInt(e.Seq, 10), e.CreatedAt.Format(time.RFC3339), e.Type, e.Principal, eventDetails(e)}
					if ref == "" {
						row = append([]string{e.SandboxID}, row...)
					}
					t.add(row...)
				}
				return t.write(a.Stdout)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most results, up to 100")
	cmd.Flags().BoolVar(&reverse, "reverse", false, "the newest first")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show what happens from now on")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// followEvents shows events as they happen, a line for each.
func (a *app) followEvents(ctx context.Context, c *api.Client, ref string, asJSON bool) error {
	err := c.FollowEvents(ctx, ref, -1, func(e api.Event) error {
		if e.Missed > 0 && !asJSON {
			a.note("%d events were left out; they came faster than they could be shown", e.Missed)
		}
		line := clean(fmt.Sprintf("%s  %s  %-24s  %s  %s", e.CreatedAt.Format(time.RFC3339), e.SandboxID, e.Type, e.Principal, eventDetails(e)))
		if asJSON {
			raw, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = string(escapeControls(raw))
		}
		_, err := fmt.Fprintln(a.Stdout, line)
		return err
	})
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return exitCodeError{code: exitPipe}
	}
	return err
}

// eventDetails is what an event says beside its type.
func eventDetails(e api.Event) string {
	if len(e.Event) == 0 {
		return ""
	}
	raw, err := json.Marshal(e.Event)
	if err != nil { // it came as JSON
		return ""
	}
	return string(raw)
}
