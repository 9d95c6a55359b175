package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) envCommand() *cobra.Command {
	var remove []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "env <sandbox> [KEY=VALUE...] [flags]", Short: "Show and change the variables of a sandbox",
		Long: `Show the environment variables of a sandbox, after setting and deleting those
that are given. Commands get them from then on; what runs keeps its own.`,
		Example: `  sandgate env dev
  sandgate env dev API_URL=https://api.example.com DEBUG=1
  sandgate env dev --delete DEBUG -d API_URL`,
		Args: atLeast(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := map[string]*string{}
			for _, kv := range args[1:] {
				k, v, ok := strings.Cut(kv, "=")
				if !ok || k == "" {
					return usagef("%q is not KEY=VALUE; to delete a variable: --delete %s", kv, kv)
				}
				change[k] = &v
			}
			for _, k := range remove {
				if _, both := change[k]; both {
					return usagef("--delete: %s is set and deleted at once", k)
				}
				change[k] = nil
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				all, err := c.SetEnv(ctx, args[0], change)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(api.Env{Env: all})
				}
				var b strings.Builder
				for _, k := range slices.Sorted(maps.Keys(all)) {
					b.WriteString(clean(k) + "=" + clean(all[k]) + "\n")
				}
				_, err = fmt.Fprint(a.Stdout, b.String())
				return err
			})
		},
	}
	cmd.Flags().StringArrayVarP(&remove, "delete", "d", nil, "delete a variable (repeatable)")
	jsonFlag(cmd, &asJSON)
	return cmd
}
