package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Aliases: []string{"sessions"}, Short: "See and take up the terminals that are open in sandboxes",
		Long: `See and take up the terminals that are open in sandboxes. A session goes on when
its client is gone, outlives the server, and a pause with memory.`,
		Example: `  ssh -t dev+main@gateway                # a session by that name: taken up, or begun
  sandgate session list
  sandgate session attach dev            # the one that was used last
  sandgate session attach dev main --watch`,
	}
	a.group(cmd)
	cmd.AddCommand(a.sessionListCommand(), a.sessionGetCommand(), a.sessionAttachCommand(), a.sessionRenameCommand(),
		a.sessionDetachCommand(), a.sessionKillCommand())
	return cmd
}

// argSession is the argument of commands about one session.
const argSession = "the name of a session; see: sandgate session list"

func (a *app) sessionListCommand() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "list [sandbox] [flags]", Aliases: []string{"ls"}, Short: "List sessions, newest first",
		Long:    "List the sessions of a sandbox, or of all of yours.",
		Example: "  sandgate session list\n  sandgate session list dev --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly(argSandbox)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := strings.Join(args, "")
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.Sessions(ctx, ref, all)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				if len(list.Sessions) == 0 {
					a.note("no sessions; begin one with: ssh -t <sandbox>+<name>@gateway")
					return nil
				}
				t := table{header: []string{"SANDBOX", "NAME", "STATUS", "ACTIVE", "CLIENTS", "COMMAND"}, style: a.statusColumn(2)}
				if all {
					t.header = append(t.header, "ID") // ended ones have no other name
				}
				for _, s := range list.Sessions {
					row := []string{s.SandboxID, s.Name, sessionStatus(s), a.age(lastActive(s)), strconv.Itoa(len(s.Viewers)), shorten(sessionCommandText(s.Command), 40)}
					if all {
						row = append(row, s.SessionID)
					}
					t.add(row...)
				}
				return t.write(a.Stdout)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "with those that have ended")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// sessionStatus is the status of a session, and how it ended.
func sessionStatus(s api.Session) string {
	switch {
	case s.Live() || s.ExitCode == nil:
		return s.Status
	case s.Signal != "":
		return s.Status + " (" + s.Signal + ")"
	}
	return fmt.Sprintf("%s (%d)", s.Status, *s.ExitCode)
}

func lastActive(s api.Session) time.Time {
	for _, t := range []time.Time{s.EndedAt, s.ActiveAt} {
		if !t.IsZero() {
			return t
		}
	}
	return s.CreatedAt
}

func sessionCommandText(command string) string {
	if command == "" {
		return "(login shell)"
	}
	return command
}

func (a *app) sessionGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <sandbox> <session> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a session and who is there",
		Long:    "Describe a live session by its name, or any by its id.",
		Example: "  sandgate session get dev main --json | jq -r '.viewers[].principal'",
		Args:    exactly(argSandbox, argSession),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				s, err := c.Session(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return a.printSession(s, asJSON)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printSession(s api.Session, asJSON bool) error {
	if asJSON {
		return a.printJSON(s)
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return a.moment(t)
	}
	pairs := []pair{
		{"name", s.Name}, {"id", s.SessionID}, {"sandbox", s.SandboxID}, {"status", sessionStatus(s)}, {"reason", s.Reason},
		{"command", sessionCommandText(s.Command)}, {"user", s.User}, {"started by", s.Owner}, {"recording", s.RecordingID},
		{"created", at(s.CreatedAt)}, {"active", at(s.ActiveAt)}, {"detached", at(s.DetachedAt)}, {"ends, if left alone", at(s.EndsAt)}, {"ended", at(s.EndedAt)},
	}
	for _, v := range s.Viewers {
		does := "types"
		if v.Mode == string(sandbox.ViewWatch) {
			does = "watches"
		}
		who := v.Principal + ", " + does + " since " + a.moment(v.Since)
		if v.From != "" {
			who += ", from " + v.From
		}
		if v.Cols > 0 && v.Rows > 0 {
			who += fmt.Sprintf(", %dx%d", v.Cols, v.Rows)
		}
		pairs = append(pairs, pair{"client", who})
	}
	return describe(a.Stdout, pairs, a.statusPair)
}

func (a *app) sessionRenameCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rename <sandbox> <session> <name> [flags]", Aliases: []string{"mv"}, Short: "Give a session another name",
		Example: "  sandgate session rename dev s1 build",
		Args:    exactly(argSandbox, argSession, "the new name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				s, err := c.RenameSession(ctx, args[0], args[1], args[2])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				_, err = fmt.Fprintf(a.Stdout, "%s is called %s\n", clean(s.SessionID), clean(s.Name))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) sessionDetachCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "detach <sandbox> <session> [flags]", Short: "Send all clients of a session away; it goes on",
		Example: "  sandgate session detach dev main",
		Args:    exactly(argSandbox, argSession),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if err := c.DetachSession(ctx, args[0], args[1]); err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(map[string]any{"sandbox": args[0], "detached": args[1]})
				}
				_, err := fmt.Fprintf(a.Stdout, "%s is detached\n", clean(args[1]))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) sessionKillCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "kill <sandbox> <session> [flags]", Aliases: []string{"end", "delete", "rm"}, Short: "End a session",
		Long: `End a session: what runs in it gets a hangup, as when a terminal is closed, and
what has not ended after a moment is killed.`,
		Example: "  sandgate session kill dev main",
		Args:    exactly(argSandbox, argSession),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if err := c.KillSession(ctx, args[0], args[1]); err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(map[string]any{"sandbox": args[0], "killed": args[1]})
				}
				_, err := fmt.Fprintf(a.Stdout, "%s has ended\n", clean(args[1]))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
