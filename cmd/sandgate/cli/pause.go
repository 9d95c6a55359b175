package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.onSandbox(&cobra.Command{
		Use: "pause <sandbox> [flags]", Aliases: []string{"hibernate"}, Short: "Pause a sandbox, which then costs neither memory nor CPU",
		Long: `Pause a sandbox. It keeps its files and, where the engine can, what runs in it:
` + "`sandgate doctor`" + ` says so under checkpoint. It goes on with resume, and by itself
when it is used. A sandbox made with --paused-timeout is deleted when it was
paused for that long.`,
		Example: `  sandgate pause dev
  sandgate pause dev --json | jq -r .terminatesAt`,
	}, func(ctx context.Context, c *api.Client, ref string) (api.Sandbox, error) { return c.Pause(ctx, ref) },
		func(s api.Sandbox) string {
			line := "paused " + s.SandboxID
			if !s.MemoryKept {
				line += ", without what ran in it"
			}
			if !s.TerminatesAt.IsZero() {
				line += "; it is deleted at " + s.TerminatesAt.Format(time.RFC3339)
			}
			return line
		})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.onSandbox(&cobra.Command{
		Use: "resume <sandbox> [flags]", Aliases: []string{"wake"}, Short: "Bring a paused sandbox up again",
		Long:    "Bring a paused sandbox up again, with what ran in it if that was kept. One that is up is left alone.",
		Example: "  sandgate resume dev",
	}, func(ctx context.Context, c *api.Client, ref string) (api.Sandbox, error) { return c.Resume(ctx, ref) },
		func(s api.Sandbox) string { return "resumed " + s.SandboxID })
}

// onSandbox completes a command that does one thing to a sandbox and tells it
// in a line.
func (a *app) onSandbox(cmd *cobra.Command, do func(context.Context, *api.Client, string) (api.Sandbox, error), line func(api.Sandbox) string) *cobra.Command {
	var asJSON bool
	cmd.Args = exactly("the id or name of a sandbox")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
			s, err := do(ctx, c, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(s)
			}
			_, err = fmt.Fprintln(a.Stdout, clean(line(s)))
			return err
		})
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
