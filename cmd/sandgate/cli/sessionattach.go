package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) sessionAttachCommand() *cobra.Command {
	var watch, share, alone, show, asJSON bool
	cmd := &cobra.Command{
		Use: "attach <sandbox> [session] [flags]", Aliases: []string{"a"}, Short: "Take up a session",
		Long: `Take up a session in this terminal, with the system's ssh; without a name the one
that was used last. What it shows is drawn anew. Who is there already stays and
types along, and all see who has come.

Closing the window, or ~. at the beginning of a line, leaves a session; it goes
on.`,
		Example: `  sandgate session attach dev
  sandgate session attach dev main --watch   # see and touch nothing
  sandgate session attach dev main --alone   # send the others away
  sandgate session attach dev main --show    # the ssh command that does it`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return exactly(argSandbox)(cmd, args)
			}
			return exactly(argSandbox, argSession)(cmd, args)
		},
		Annotations: map[string]string{takesCommand: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			how := "attach"
			for name, set := range map[string]bool{"watch": watch, "share": share, "alone": alone} {
				if !set {
					continue
				}
				if how != "attach" {
					return misused(cmd, "choose one of --watch, --share and --alone")
				}
				if how = name; name != "watch" {
					how += ",attach" // a watched session is never begun
				}
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return own(err)
			}
			defer c.Close()
			line, err := a.attachLine(cmd.Context(), c, how, args)
			if err != nil {
				return own(err)
			}
			if show || asJSON || !a.Local {
				return a.showSSH(line, asJSON)
			}
			_ = c.Close()
			return a.openSSH(cmd.Context(), line)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&watch, "watch", false, "see what happens and type nothing")
	fl.BoolVar(&share, "share", false, "type along with who is there (as without any of these)")
	fl.BoolVar(&alone, "alone", false, "detach all others who type")
	fl.BoolVar(&show, "show", false, "print the ssh command instead of running it")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// attachLine is the command line of ssh that takes up a session. What is wanted
// of it travels in a variable, which the gateway keeps to itself.
func (a *app) attachLine(ctx context.Context, c *api.Client, how string, args []string) ([]string, error) {
	var name string
	if len(args) > 1 {
		s, err := c.Session(ctx, args[0], args[1])
		if err != nil {
			return nil, err
		}
		if !s.Live() {
			return nil, fault.New(fault.State, "session %s has ended; sandgate session list shows those that go on", clean(args[1])).About("session")
		}
		name = s.Name
	} else {
		list, err := c.Sessions(ctx, args[0], false)
		if err != nil {
			return nil, err
		}
		if len(list.Sessions) == 0 {
			return nil, fault.New(fault.NotFound, "there is no session in %s; begin one with: sandgate ssh %[1]s+main", clean(args[0])).About("session")
		}
		latest := list.Sessions[0]
		for _, s := range list.Sessions {
			if lastActive(s).After(lastActive(latest)) {
				latest = s
			}
		}
		name = latest.Name
	}
	user := args[0] + "+" + name
	if !sshUser.MatchString(user) {
		return nil, fault.InvalidField("sandbox", "%q is not the id or name of a sandbox", args[0])
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	d, err := a.destination(c, info)
	if err != nil {
		return nil, err
	}
	return append([]string{"-t", "-o", "SetEnv=SANDGATE_SESSION=" + how}, append(d.options, "--", user+"@"+d.host)...), nil
}
