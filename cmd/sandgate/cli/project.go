package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) projectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "project", Short: "Share sandboxes: projects, orgs and who is in them",
		Long: `Projects and orgs are labels of sandboxes (--project-id, --org-id). A label that is
not registered is a word to filter by, and anybody's. A registered one is put on
sandboxes only by its members and by admins.

Members of a project see and use each other's sandboxes of it, by their ids; only
the owner and admins delete one. Who is in an org makes sandboxes in it alone, so
that the quota of orgs (serve --org-quota) holds.`,
		Example: `  sandgate project create web
  sandgate project add web alice bob
  sandgate create --project-id web
  sandgate project list --org`,
	}
	a.group(cmd)
	cmd.AddCommand(a.projectListCommand(), a.projectCreateCommand(), a.projectDeleteCommand(),
		a.projectMemberCommand("add", "Add principals to a project", "added"),
		a.projectMemberCommand("remove", "Take principals out of a project", "removed"))
	return cmd
}

// kindFlag adds --org.
func kindFlag(cmd *cobra.Command, org *bool) {
	cmd.Flags().BoolVar(org, "org", false, "an org, not a project")
}

func kindOf(org bool) string {
	if org {
		return "org"
	}
	return "project"
}

func (a *app) projectListCommand() *cobra.Command {
	var org, asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List projects and who is in them",
		Long:    "List the projects you are in; as admin, all.",
		Example: "  sandgate project list\n  sandgate project list --org",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Projects(cmd.Context(), kindOf(org))
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(api.ProjectList{Projects: all})
			}
			if len(all) == 0 {
				a.note("no %s is registered", kindOf(org))
				return nil
			}
			t := table{header: []string{"NAME", "MEMBERS", "CREATED", "DESCRIPTION"}}
			for _, p := range all {
				names := make([]string, len(p.Members))
				for i, m := range p.Members {
					names[i] = m.Principal
				}
				members := strings.Join(names, ",")
				if members == "" {
					members = "-"
				}
				t.add(p.Name, members, a.age(p.CreatedAt), p.Description)
			}
			return t.write(a.Stdout)
		},
	}
	kindFlag(cmd, &org)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) projectCreateCommand() *cobra.Command {
	var description string
	var org, asJSON bool
	cmd := &cobra.Command{
		Use: "create <name> [flags]", Aliases: []string{"new"}, Short: "Register a project",
		Example: "  sandgate project create web --description 'the shop'\n  sandgate project create --org acme",
		Args:    exactly("the name of the project"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			p, err := c.CreateProject(cmd.Context(), api.ProjectRequest{Kind: kindOf(org), Name: args[0], Description: description})
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(p)
			}
			_, err = fmt.Fprintf(a.Stdout, "registered the %s %s\n", p.Kind, clean(p.Name))
			return err
		},
	}
	cmd.Flags().StringVar(&description, "description", "", "description")
	kindFlag(cmd, &org)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) projectDeleteCommand() *cobra.Command {
	var org, asJSON bool
	cmd := &cobra.Command{
		Use: "delete <name>... [flags]", Aliases: []string{"rm", "del"}, Short: "Make the name of a project a mere label again",
		Long:    "Make the name of a project a mere label again. Sandboxes keep the label, and are their owners' alone.",
		Example: "  sandgate project delete web",
		Args:    atLeast("the name of a project; see: sandgate project list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				return a.deleteEach(args, asJSON, func(name string) error { return c.DeleteProject(ctx, kindOf(org), name) })
			})
		},
	}
	kindFlag(cmd, &org)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) projectMemberCommand(verb, short, done string) *cobra.Command {
	var org, asJSON bool
	cmd := &cobra.Command{
		Use: verb + " <name> <principal>... [flags]", Short: short,
		Example: "  sandgate project " + verb + " web alice bob",
		Args:    atLeast("the name of a project", "the principal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			change := c.AddMember
			if verb == "remove" {
				change = c.RemoveMember
			}
			for _, principal := range args[1:] {
				if err := change(cmd.Context(), kindOf(org), args[0], principal); err != nil {
					return err
				}
				if !asJSON {
					fmt.Fprintf(a.Stdout, "%s %s\n", done, clean(principal))
				}
			}
			if asJSON {
				return a.printJSON(map[string]any{"name": args[0], "kind": kindOf(org), done: args[1:]})
			}
			return nil
		},
	}
	kindFlag(cmd, &org)
	jsonFlag(cmd, &asJSON)
	return cmd
}
