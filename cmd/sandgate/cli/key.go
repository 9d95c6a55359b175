package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/keys/github"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Say who may come in",
		Long: `Say who may come in: the public keys the gateway knows, whose they are, and what
they may do. An admin may do everything with every sandbox; a member everything
with their own.`,
		Example: `  sandgate key add ~/.ssh/id_ed25519.pub
  sandgate key add github:octocat --principal octocat
  sandgate key list`,
	}
	a.group(cmd)
	cmd.AddCommand(a.keyAddCommand(), a.keyListCommand(), a.keyDeleteCommand(), a.keyInviteCommand(), a.keyAPICommand())
	return cmd
}

// grantFlags say for whom a key is, what it allows, and for how long.
type grantFlags struct {
	principal, role, expires string
	flag                     string // name of the flag of expires, when it is another
}

func (f *grantFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.principal, "principal", "", "whose key it is (default: yours)")
	fl.StringVar(&f.role, "role", "", "admin or member (default: member, and for your own key what you are)")
	fl.StringVar(&f.expires, "expires", "", "when it stops working: after a time such as 30d, or on a day such as 2027-01-31")
}

// expiry reads --expires; the zero time is never.
func (f *grantFlags) expiry(now time.Time) (time.Time, error) {
	if f.expires == "" {
		return time.Time{}, nil
	}
	flag := f.flag
	if flag == "" {
		flag = "expires"
	}
	if d, err := sandbox.ParseDuration(f.expires); err == nil {
		if d == 0 {
			return time.Time{}, flagError(flag, fmt.Errorf("%q would never work; leave the flag out for a key that stays", f.expires))
		}
		return now.Add(d).UTC(), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, f.expires); err == nil {
			if !t.After(now) {
				return time.Time{}, flagError(flag, fmt.Errorf("%s is in the past", f.expires))
			}
			return t.UTC(), nil
		}
	}
	return time.Time{}, flagError(flag, fmt.Errorf("%q is neither a time such as 30d or 12h nor a day such as 2027-01-31", f.expires))
}

func (a *app) keyAddCommand() *cobra.Command {
	var grant grantFlags
	var limits scopeFlags
	var noTouch, asJSON bool
	cmd := &cobra.Command{
		Use: "add <file|-|github:USER> [flags]", Aliases: []string{"create", "new"}, Short: "Register public keys",
		Long: `Register the public keys of a file, of standard input (-), or those that a user
of GitHub has published (github:USER). Give public keys, never private ones.`,
		Example: `  sandgate key add ~/.ssh/id_ed25519.pub
  sandgate key add github:octocat --principal octocat --expires 30d
  sandgate key add ci.pub --principal ci --project web --verbs exec,files
  ssh gateway key add - <new.pub`,
		Args: exactly("a file of public keys, - or github:USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			expires, err := grant.expiry(a.Now())
			if err != nil {
				return err
			}
			scope, err := limits.scope()
			if err != nil {
				return err
			}
			found, err := a.publicKeys(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			added := []keys.Key{}
			var known error
			for _, p := range found {
				k, err := c.AddKey(cmd.Context(), api.AddKeyRequest{
					Key: strings.TrimSpace(p.Key.PublicKey + " " + p.Key.Comment), Principal: grant.principal, Role: grant.role, ExpiresAt: expires,
					Scope: scope, NoTouch: noTouch || p.Key.NoTouch,
				})
				if fault.Is(err, fault.Exists) && len(found) > 1 {
					known = err
					a.note("%s is registered already", p.Key.Fingerprint)
					continue
				}
				if err != nil {
					return err
				}
				added = append(added, k)
				if !asJSON {
					fmt.Fprintf(a.Stdout, "added %s for %s (%s)\n", k.Fingerprint, clean(k.Principal), k.Role)
				}
			}
			if len(added) == 0 && known != nil {
				return known
			}
			if asJSON {
				return a.printJSON(api.KeyList{Keys: added})
			}
			return nil
		},
	}
	grant.register(cmd)
	limits.register(cmd)
	cmd.Flags().BoolVar(&noTouch, "no-touch-required", false, "accept a security key (sk-…) without a touch")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// githubTimeout bounds the fetching of a user's keys.
const githubTimeout = 20 * time.Second

// publicKeys reads the keys that source names. Lines that are not accepted are
// told; it is an error when nothing is left.
func (a *app) publicKeys(ctx context.Context, source string) ([]keys.Parsed, error) {
	var found []keys.Parsed
	var rejected []keys.Rejected
	var err error
	if user, ok := strings.CutPrefix(source, "github:"); ok {
		client := a.HTTP
		if client == nil {
			client = &http.Client{Timeout: githubTimeout}
		}
		found, rejected, err = github.Fetch(ctx, client, github.BaseURL, user)
	} else {
		var in io.Reader
		switch {
		case source == "-" && a.Stdin == nil:
			return nil, usagef("there is no standard input to read keys from")
		case source == "-":
			in = a.Stdin
		case !a.Local:
			return nil, usagef("%q would be a file of the gateway, not of your machine; send yours on standard input: key add - <%s", source, source)
		default:
			f, oerr := os.Open(source)
			if oerr != nil {
				return nil, usageError{oerr}
			}
			defer f.Close()
			in = f
		}
		if found, rejected, err = keys.Parse(in); err != nil {
			err = fault.Wrap(err, fault.Invalid, "%s: %v", source, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if len(rejected) > 0 {
			return nil, fault.New(fault.Invalid, "%s has no key that is accepted: %s", source, rejected[0])
		}
		return nil, fault.New(fault.Invalid, "%s has no public key", source)
	}
	for _, r := range rejected {
		a.note("%s, %s; skipped", source, r)
	}
	return found, nil
}

func (a *app) keyListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List public keys",
		Long:    "List your public keys; as admin, everybody's.",
		Example: "  sandgate key list",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(api.KeyList{Keys: all})
			}
			if len(all) == 0 {
				a.note("no keys; register one with: sandgate key add ~/.ssh/id_ed25519.pub")
				return nil
			}
			t := table{header: []string{"FINGERPRINT", "TYPE", "PRINCIPAL", "ROLE", "SCOPE", "EXPIRES", "LAST USED", "COMMENT"}}
			for _, k := range all {
				t.add(k.Fingerprint, k.Type, k.Principal, string(k.Role), k.Scope.String(), a.age(k.ExpiresAt), a.age(k.LastUsedAt), k.Comment)
			}
			return t.write(a.Stdout)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyDeleteCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "delete <fingerprint>... [flags]", Aliases: []string{"rm", "del", "remove"}, Short: "Remove public keys",
		Long:    "Remove public keys by their fingerprint. Connections that were opened with one go on.",
		Example: "  sandgate key delete SHA256:2a9GfFTjvUZ9vQwd0n5Q7XKZ4O2W8yF5rE1tJ0mL3bI",
		Args:    atLeast("the fingerprint of a key; see: sandgate key list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.deleteEach(args, asJSON, func(fingerprint string) error { return c.DeleteKey(cmd.Context(), fingerprint) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
