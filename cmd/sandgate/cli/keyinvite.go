package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) keyInviteCommand() *cobra.Command {
	var grant grantFlags
	var scope scopeFlags
	var keyExpires string
	var uses int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "invite [flags]", Short: "Let somebody register a key of their own, with a code",
		Long: `Make a code that lets somebody register a public key of their own: they type
` + "`ssh join@gateway`" + ` and give it. It is shown this once, and is good for one key
and one day unless you say otherwise.

Without --principal the key will be one of yours: the way to add your next
machine.`,
		Example: `  sandgate key invite --principal alice
  sandgate key invite --principal ci --verbs exec,files --project web --uses 3 --expires 7d
  sandgate key invite list`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := api.InviteRequest{Principal: grant.principal, Role: grant.role, Uses: uses}
			if uses < 1 {
				return usagef("--uses: must be 1 or more")
			}
			var err error
			if r.ExpiresAt, err = grant.expiry(a.Now()); err != nil {
				return err
			}
			of := grantFlags{expires: keyExpires, flag: "key-expires"}
			if r.KeyExpiresAt, err = of.expiry(a.Now()); err != nil {
				return err
			}
			if r.Scope, err = scope.scope(); err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			i, err := c.CreateInvite(cmd.Context(), r)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(i)
			}
			a.note("an invitation for %s (%s), good %s; shown this once. They type: ssh %sjoin@%s",
				clean(i.Principal), i.Role, a.age(i.ExpiresAt), a.portFlag(cmd, c), a.gatewayHost(cmd, c))
			_, err = fmt.Fprintln(a.Stdout, i.Code)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&grant.principal, "principal", "", "whose keys it registers (default: yours)")
	fl.StringVar(&grant.role, "role", "", "of these keys: admin or member (default: member, and for yourself what you are)")
	fl.StringVar(&grant.expires, "expires", "24h", "how long the invitation is good: a time such as 24h, or a day")
	fl.StringVar(&keyExpires, "key-expires", "", "when the keys it registers stop working (default: never)")
	fl.IntVar(&uses, "uses", 1, "how many keys it registers")
	scope.register(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.keyInviteListCommand(), a.keyInviteRevokeCommand())
	return cmd
}

// gatewayAddress is where clients reach the gateway, as far as this one knows.
func (a *app) gatewayAddress(cmd *cobra.Command, c *api.Client) (host, port string) {
	address := a.Gateway
	if info, err := c.Info(cmd.Context()); err == nil && info.SSH != "" {
		address = info.SSH
	}
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		host = "gateway"
	}
	return host, port
}

func (a *app) gatewayHost(cmd *cobra.Command, c *api.Client) string {
	host, _ := a.gatewayAddress(cmd, c)
	return host
}

func (a *app) portFlag(cmd *cobra.Command, c *api.Client) string {
	if _, port := a.gatewayAddress(cmd, c); port != "" && port != "22" {
		return "-p " + port + " "
	}
	return ""
}

func (a *app) keyInviteListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List invitations, without their codes",
		Example: "  sandgate key invite list",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Invites(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(api.InviteList{Invites: all})
			}
			if len(all) == 0 {
				a.note("no invitations; make one with: sandgate key invite --principal NAME")
				return nil
			}
			t := table{header: []string{"ID", "PRINCIPAL", "ROLE", "SCOPE", "USED", "EXPIRES", "BY"}}
			for _, i := range all {
				t.add(i.ID, i.Principal, string(i.Role), i.Scope.String(), strconv.Itoa(i.Used)+"/"+strconv.Itoa(i.Uses), a.age(i.ExpiresAt), i.CreatedBy)
			}
			return t.write(a.Stdout)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyInviteRevokeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "revoke <id>... [flags]", Aliases: []string{"delete", "rm"}, Short: "Take invitations back",
		Long:    "Take invitations back by their id. Keys that were registered with one stay.",
		Example: "  sandgate key invite revoke inv_4k2m7qa3bc5d",
		Args:    atLeast("the id of an invitation; see: sandgate key invite list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				return a.deleteEach(args, asJSON, func(id string) error { return c.RevokeInvite(ctx, id) })
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
