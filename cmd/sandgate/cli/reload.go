package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) reloadCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "reload [flags]", Short: "Have the server read its files anew, for admins",
		Long: `Have the server read its host keys and other files anew, without dropping a
connection; the same as sending it SIGHUP. What cannot be read stays as it was,
and is said. What the server was started with changes with a restart only.`,
		Example: "  sandgate reload",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				done, err := c.Reload(ctx)
				if err != nil {
					return err
				}
				failed := 0
				for _, f := range done.Files {
					if f.Error != "" {
						failed++
					}
				}
				if asJSON {
					if err := a.printJSON(done); err != nil {
						return err
					}
				} else {
					for _, line := range reloadLines(done) {
						if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
							return err
						}
					}
				}
				if failed > 0 {
					return exitCodeError{exitError, fmt.Errorf("%d of %d could not be reloaded and stay as they were", failed, len(done.Files))}
				}
				return nil
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// reloadLines tell what a reload did.
func reloadLines(done sandbox.Reload) []string {
	var lines, good []string
	for _, f := range done.Files {
		if f.Error != "" {
			lines = append(lines, clean(fmt.Sprintf("not reloaded: %s (%s): %s", f.What, f.Path, f.Error)))
			continue
		}
		what := f.What
		if f.Note != "" {
			what += " (" + f.Note + ")"
		}
		good = append(good, what)
	}
	if len(good) > 0 {
		lines = append([]string{clean("reloaded: " + strings.Join(good, ", "))}, lines...)
	}
	if len(done.Restart) > 0 {
		lines = append(lines, clean("changed only by a restart: "+strings.Join(done.Restart, ", ")))
	}
	return lines
}
