package cli

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"
)

// Groups of the help.
const (
	groupSandbox = "sandboxes"
	groupAccess  = "access"
	groupServer  = "server"
)

// run runs one command line in env and returns the exit code; see exitcode.go.
// extra are commands that exist in this place alone (serve, doctor, …).
func run(ctx context.Context, env Env, args []string, extra ...*cobra.Command) int {
	root := newRoot(env, extra...)
	root.SetArgs(args)
	if !env.Local {
		return report(env.Stderr, root.ExecuteContext(ctx))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends the program the hard way

	// fang dresses the help. Errors of commands pass it by: it would ask the
	// terminal for its colours before it hands one out.
	var failed error
	keepErrors(root, &failed)
	err := fang.Execute(ctx, root, fang.WithVersion(version), fang.WithErrorHandler(func(io.Writer, fang.Styles, error) {}))
	if err == nil {
		err = failed
	}
	return report(env.Stderr, err)
}

// keepErrors makes commands leave their error in failed.
func keepErrors(cmd *cobra.Command, failed *error) {
	if f := cmd.RunE; f != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*failed = f(cmd, args)
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		keepErrors(sub, failed)
	}
}

// newRoot makes the command tree for env.
func newRoot(env Env, extra ...*cobra.Command) *cobra.Command {
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	a := &app{Env: env}
	root := &cobra.Command{
		Use:   "sandgate",
		Short: "Sandboxes for interactive work, reached with ssh",
		Long:  "Sandboxes for interactive work: made in a moment, isolated, and reached with nothing but ssh.",
		Example: `  sandgate create --name dev             # a sandbox that stays
  sandgate ssh dev                       # a shell in it
  sandgate exec dev -- ls -la            # one command in it
  sandgate run -- python3 -c 'print(1)'  # a sandbox for one command
  sandgate delete dev`,
	}
	a.group(root)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown") && cmd.Annotations[takesCommand] != "" {
			return misused(cmd, "%w; if it belongs to the command, put -- before the command", err)
		}
		return misused(cmd, "%w; see: %s --help", err, cmd.CommandPath())
	})
	if env.Local {
		root.PersistentFlags().StringVar(&a.host, "host", "", "server: unix:///socket, ssh://[user@]gateway[:port] or https://gateway (default $SANDGATE_HOST, or the one of this machine)")
	} else {
		root.CompletionOptions.DisableDefaultCmd = true
	}
	root.AddGroup(
		&cobra.Group{ID: groupSandbox, Title: "Sandboxes"},
		&cobra.Group{ID: groupAccess, Title: "Access"},
		&cobra.Group{ID: groupServer, Title: "Server"},
	)
	root.SetHelpCommandGroupID(groupServer)
	root.SetCompletionCommandGroupID(groupServer)
	add(root, groupSandbox, a.sandboxCommands()...)
	add(root, groupSandbox, a.sandboxCommand())
	add(root, groupAccess, a.sshCommand(), a.configSSHCommand(), a.sessionCommand(), a.recordingCommand(), a.keyCommand(), a.projectCommand())
	add(root, groupServer, a.auditCommand(), a.reloadCommand(), a.versionCommand())
	add(root, groupServer, extra...)
	return root
}

// sandboxCommands are the commands that exist twice: `sandgate create` and
// `sandgate sandbox create`.
func (a *app) sandboxCommands() []*cobra.Command {
	return []*cobra.Command{
		a.createCommand(), a.runCommand(), a.listCommand(), a.getCommand(), a.execCommand(), a.deleteCommand(),
		a.pauseCommand(), a.resumeCommand(), a.forkCommand(), a.updateCommand(), a.jobCommand(), a.fsCommand(),
		a.snapshotCommand(), a.checkpointCommand(),
		a.envCommand(), a.statsCommand(),
		a.eventsCommand(), a.executionCommand(), a.runtimeCommand(),
	}
}

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sandbox", Aliases: []string{"sb"}, Short: "The same commands under another name",
		Long:    "The commands for sandboxes under the name of sandbox: `sandgate sandbox create` is `sandgate create`.",
		Example: "  sandgate sandbox list\n  sandgate sb list",
	}
	a.group(cmd)
	cmd.AddCommand(a.sandboxCommands()...)
	return cmd
}

func add(root *cobra.Command, id string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		if c.GroupID == "" {
			c.GroupID = id
		}
		root.AddCommand(c)
	}
}

// group makes cmd a command that only holds others: by itself it shows its
// help, and an unknown word after it gets a suggestion.
func (a *app) group(cmd *cobra.Command) {
	lost := a.lostUser()
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			return usagef("there is no command %q%s; did you mean %s?", args[0], lost, strings.Join(like, " or "))
		}
		return usagef("there is no command %q%s; see: %s --help", args[0], lost, cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// takesCommand marks commands that run a command of the user's and end with
// its exit code.
const takesCommand = "takes-command"

// misused is a usage error, with the exit code it has in cmd.
func misused(cmd *cobra.Command, format string, args ...any) error {
	err := usagef(format, args...)
	if cmd.Annotations[takesCommand] != "" {
		return own(err)
	}
	return err
}

// exactly and atLeast check the number of arguments and name what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return misused(cmd, "%q is one argument too many; usage: %s", args[len(names)], cmd.UseLine())
		}
		return atLeast(names...)(cmd, args)
	}
}

func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return misused(cmd, "give %s; usage: %s", names[len(args)], cmd.UseLine())
		}
		for i, arg := range args {
			if arg == "" {
				return misused(cmd, "%s is empty", names[min(i, len(names)-1)])
			}
		}
		return nil
	}
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON")
}

// flagError says what is wrong with the value of a flag.
func flagError(flag string, err error) error { return usageError{fmt.Errorf("--%s: %w", flag, err)} }
