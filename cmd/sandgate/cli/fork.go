package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

// changeFlags are the limits and timeouts of `fork` and `update`.
type changeFlags struct {
	memory, cpu, disk       string
	idle, execution, paused string
}

func (f *changeFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory limit, such as 512Mi or 1Gi")
	fl.StringVar(&f.cpu, "cpu", "", "CPU limit, such as 500m, 0.5 or 2")
	fl.StringVar(&f.disk, "disk", "", "disk limit, such as 2Gi")
	fl.StringVar(&f.idle, "idle-timeout", "", "delete it when nothing has run in it for so long; 0s is never")
	fl.StringVar(&f.execution, "execution-timeout", "", "end commands after so long; 0s is the server's default")
	fl.StringVar(&f.paused, "paused-timeout", "", "delete it when it was paused for so long; 0s is never")
}

// read checks the flags; nil is what was not given.
func (f *changeFlags) read() (*api.Resources, *api.Timeouts, error) {
	if err := checkResources(f.memory, f.cpu, f.disk); err != nil {
		return nil, nil, err
	}
	for flag, value := range map[string]string{"idle-timeout": f.idle, "execution-timeout": f.execution, "paused-timeout": f.paused} {
		if err := duration(flag, value); err != nil {
			return nil, nil, err
		}
	}
	var r *api.Resources
	if f.memory+f.cpu+f.disk != "" {
		r = &api.Resources{Memory: f.memory, CPU: f.cpu, Disk: f.disk}
	}
	var t *api.Timeouts
	if f.idle+f.execution+f.paused != "" {
		t = &api.Timeouts{Idle: f.idle, Execution: f.execution, Paused: f.paused}
	}
	return r, t, nil
}

func (a *app) forkCommand() *cobra.Command {
	var r api.ForkRequest
	var change changeFlags
	var env []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "fork <sandbox> [flags]", Short: "Make a second sandbox with the files of the first",
		Long: `Make a second sandbox with the files that the first has now. The first runs on;
what runs in it does not run in the second. Limits, timeouts and network are
those of the first; variables, which may be secrets, only with --inherit-env.`,
		Example: `  sandgate fork dev --name try
  sandgate fork dev --inherit-env --env DEBUG=1 --memory 2Gi`,
		Args: exactly(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Resources, r.Timeout, err = change.read(); err != nil {
				return err
			}
			if r.Env, err = assignments("env", env); err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				s, err := c.Fork(ctx, args[0], r)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				_, err = fmt.Fprintln(a.Stdout, clean(s.SandboxID))
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&r.Name, "name", "", "name of the second")
	fl.StringVar(&r.Description, "description", "", "description (default: that of the first)")
	fl.BoolVar(&r.InheritEnv, "inherit-env", false, "with the environment variables of the first")
	fl.StringArrayVar(&env, "env", nil, "environment variable KEY=VALUE (repeatable)")
	change.register(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) updateCommand() *cobra.Command {
	var change changeFlags
	var name, description string
	var allow []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "update <sandbox> [flags]", Short: "Change the limits, timeouts or name of a sandbox that lives",
		Long: `Change a sandbox while it lives: all that is asked for or, when a part of it is
refused, nothing.`,
		Example: `  sandgate update dev --memory 2Gi --cpu 2
  sandgate update dev --idle-timeout 0s --name keep
  sandgate update dev --allow github.com --allow '*.npmjs.org:443'`,
		Args: exactly(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r := api.UpdateRequest{}
			if r.Resources, r.Timeout, err = change.read(); err != nil {
				return err
			}
			if cmd.Flags().Changed("name") {
				r.Name = &name
			}
			if cmd.Flags().Changed("description") {
				r.Description = &description
			}
			if cmd.Flags().Changed("allow") {
				r.Network = &api.Allow{Allow: allow}
			}
			if r == (api.UpdateRequest{}) {
				return usagef("say what to change; see: %s --help", cmd.CommandPath())
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				s, err := c.Update(ctx, args[0], r)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				_, err = fmt.Fprintln(a.Stdout, "updated "+clean(s.SandboxID))
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&name, "name", "", "name; empty takes it away")
	fl.StringVar(&description, "description", "", "description")
	fl.StringArrayVar(&allow, "allow", nil, "what may be reached from now on, instead of what might before (repeatable)")
	change.register(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}
