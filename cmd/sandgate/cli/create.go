package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) createCommand() *cobra.Command {
	var f createFlags
	var idle, paused string
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use: "create [flags]", Aliases: []string{"new"}, Short: "Make a sandbox that stays until it is deleted",
		Long: `Make a sandbox that stays until it is deleted, or idle for longer than
--idle-timeout. It is ready when the command returns; on anything but a terminal
the id is all that is printed.`,
		Example: `  sandgate create
  sandgate create --name dev --memory 1Gi --cpu 1000m
  sandgate create --snapshot python-ml --paused-timeout 24h
  sandgate create --file app/main.py:./main.py --env DEBUG=1 --idle-timeout 1h
  id=$(sandgate create) && sandgate ssh "$id"`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, _, err := f.request(a)
			if err != nil {
				return err
			}
			if err := errors.Join(duration("idle-timeout", idle), duration("paused-timeout", paused)); err != nil {
				return err
			}
			if idle+paused != "" {
				r.Timeout = &api.Timeouts{Idle: idle, Paused: paused}
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			start := a.Now()
			made, err := c.Create(cmd.Context(), r, f.org, a.progress(quiet))
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printJSON(made)
			case a.StdoutTTY && !quiet:
				_, err = fmt.Fprintf(a.Stdout, "✓ created sandbox %s in %dms\n", clean(made.SandboxID), a.Now().Sub(start).Milliseconds())
			default:
				_, err = fmt.Fprintln(a.Stdout, clean(made.SandboxID))
			}
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&idle, "idle-timeout", "", "delete the sandbox when nothing has happened in it for so long, such as 1h: no command or job runs, no key is pressed, nothing is printed (an open but silent session does not count, and neither does a daemon)")
	cmd.Flags().StringVar(&paused, "paused-timeout", "", "delete the sandbox when it was paused for so long, such as 24h (default: never)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the id and nothing else")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// progress shows what takes long, such as the first download of a runtime.
func (a *app) progress(quiet bool) func(string) {
	if quiet {
		return nil
	}
	return func(line string) { a.note("%s", oneLine(line)) }
}
