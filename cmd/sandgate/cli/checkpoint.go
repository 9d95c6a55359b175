package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

const argCheckpoint = "the id or name of a checkpoint; see: sandgate checkpoint list"

func (a *app) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoint", Aliases: []string{"ckpt", "checkpoints"}, Short: "Keep the files of a sandbox, to go back to them",
		Long: `Keep the files of a sandbox under a name, and bring them back later. Checkpoints
belong to their sandbox and go with it; for files to make other sandboxes from,
use snapshot.`,
		Example: `  sandgate checkpoint create dev before-upgrade
  sandgate checkpoint restore dev before-upgrade`,
	}
	a.group(cmd)
	cmd.AddCommand(a.checkpointCreateCommand(), a.checkpointListCommand(), a.checkpointRestoreCommand(), a.checkpointDeleteCommand())
	return cmd
}

func (a *app) checkpointCreateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create <sandbox> [name] [flags]", Aliases: []string{"new"}, Short: "Keep the files of a sandbox as they are",
		Long:    "Keep the files of a sandbox as they are, under a name or, without one, the time, and print the id.",
		Example: "  sandgate checkpoint create dev my-checkpoint",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactly(argSandbox)(cmd, args)
			}
			return exactly(argSandbox, "the name of the checkpoint")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := c.CreateCheckpoint(ctx, args[0], name)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(p)
				}
				_, err = fmt.Fprintln(a.Stdout, clean(p.ID))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) checkpointListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list <sandbox> [flags]", Aliases: []string{"ls"}, Short: "List the checkpoints of a sandbox, newest first",
		Example: "  sandgate checkpoint list dev",
		Args:    exactly(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.Checkpoints(ctx, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				if len(list.Checkpoints) == 0 {
					a.note("no checkpoints; make one with: sandgate checkpoint create %s <name>", clean(args[0]))
					return nil
				}
				t := table{header: []string{"ID", "NAME", "SIZE", "FILES", "CREATED"}}
				for _, p := range list.Checkpoints {
					t.add(p.ID, p.Name, size(p.SizeBytes), strconv.Itoa(p.FileCount), a.age(p.CreatedAt))
				}
				return t.write(a.Stdout)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) checkpointRestoreCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "restore <sandbox> <checkpoint> [flags]", Short: "Bring the files of a sandbox back",
		Long: `Bring the files of a sandbox back to how they were. What was changed since is
lost, unless it is in another checkpoint; what runs in the sandbox ends.`,
		Example: `  sandgate checkpoint restore dev my-checkpoint
  sandgate checkpoint restore dev ckpt_4k2m7qa3bc5d`,
		Args: exactly(argSandbox, argCheckpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				s, err := c.RestoreCheckpoint(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				_, err = fmt.Fprintf(a.Stdout, "restored %s to %s\n", clean(s.SandboxID), clean(args[1]))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) checkpointDeleteCommand() *cobra.Command {
	var confirm, asJSON bool
	cmd := &cobra.Command{
		Use: "delete <sandbox> <checkpoint>... [flags]", Aliases: []string{"rm", "del", "remove"}, Short: "Delete checkpoints of a sandbox",
		Long:    "Delete checkpoints of a sandbox. On a terminal it asks first, unless --confirm is given.",
		Example: "  sandgate checkpoint delete dev my-checkpoint --confirm",
		Args:    atLeast(argSandbox, argCheckpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.StdinTTY && !confirm {
				if ok, err := a.ask(cmd, fmt.Sprintf("Delete %d checkpoints of %s?", len(args)-1, args[0])); err != nil || !ok {
					return err
				}
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				return a.deleteEach(args[1:], asJSON, func(p string) error { return c.DeleteCheckpoint(ctx, args[0], p) })
			})
		},
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "do not ask")
	jsonFlag(cmd, &asJSON)
	return cmd
}
