package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) keyAPICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "api", Short: "Keys for programs that use the HTTP API",
		Long:    "Keys for programs that use the HTTP API over TCP. The unix socket and ssh need none.",
		Example: "  sandgate key api create --name ci --expires 90d\n  sandgate key api list",
	}
	a.group(cmd)
	cmd.AddCommand(a.keyAPICreateCommand(), a.keyAPIListCommand(), a.keyAPIDeleteCommand())
	return cmd
}

func (a *app) keyAPICreateCommand() *cobra.Command {
	var grant grantFlags
	var limits scopeFlags
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create [flags]", Aliases: []string{"new", "add"}, Short: "Make an API key and show it, this once",
		Example: `  sandgate key api create --name ci --expires 90d
  export SANDGATE_API_KEY=$(sandgate key api create)`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			expires, err := grant.expiry(a.Now())
			if err != nil {
				return err
			}
			scope, err := limits.scope()
			if err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			k, err := c.AddAPIKey(cmd.Context(), api.AddAPIKeyRequest{Name: name, Principal: grant.principal, Role: grant.role, ExpiresAt: expires, Scope: scope})
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(k)
			}
			a.note("made %s for %s (%s); the key below is shown this once", k.ID, clean(k.Principal), k.Role)
			_, err = fmt.Fprintln(a.Stdout, k.Key)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what it is for")
	grant.register(cmd)
	limits.register(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyAPIListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List API keys, without their secrets",
		Example: "  sandgate key api list",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.APIKeys(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(api.APIKeyList{APIKeys: all})
			}
			if len(all) == 0 {
				a.note("no API keys; make one with: sandgate key api create")
				return nil
			}
			t := table{header: []string{"ID", "NAME", "PRINCIPAL", "ROLE", "SCOPE", "EXPIRES", "LAST USED", "CREATED"}}
			for _, k := range all {
				name := k.Name
				if name == "" {
					name = "-"
				}
				t.add(k.ID, name, k.Principal, string(k.Role), k.Scope.String(), a.age(k.ExpiresAt), a.age(k.LastUsedAt), a.age(k.CreatedAt))
			}
			return t.write(a.Stdout)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyAPIDeleteCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "delete <id>... [flags]", Aliases: []string{"rm", "del", "remove"}, Short: "Revoke API keys",
		Example: "  sandgate key api delete key_4k2m7qa3bc5d",
		Args:    atLeast("the id of an API key; see: sandgate key api list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.deleteEach(args, asJSON, func(id string) error { return c.DeleteAPIKey(cmd.Context(), id) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
