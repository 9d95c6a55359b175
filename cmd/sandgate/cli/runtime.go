package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) runtimeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "runtime", Aliases: []string{"rt"}, Short: "Look at what sandboxes are made from",
		Example: "  sandgate runtime list",
	}
	a.group(cmd)
	var page pageFlags
	var asJSON bool
	list := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List the runtimes of the server",
		Example: "  sandgate runtime list\n  sandgate runtime list --sort name --direction asc --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.check(); err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Runtimes(cmd.Context(), page.sort, page.direction, page.limit, page.offset)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(all)
			}
			t := table{header: []string{"NAME", "ID", "READY", "SOURCE", "DESCRIPTION"}}
			for _, r := range all.Runtimes {
				ready := "no"
				if r.Ready {
					ready = "yes"
				}
				t.add(r.Name, r.ID, ready, r.Source, r.Description)
			}
			return t.write(a.Stdout)
		},
	}
	page.register(list, "name or created")
	jsonFlag(list, &asJSON)
	cmd.AddCommand(list)
	return cmd
}
