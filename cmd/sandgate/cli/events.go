package cli

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) eventsCommand() *cobra.Command {
	var limit int
	var reverse, asJSON bool
	cmd := &cobra.Command{
		Use: "events <sandbox> [flags]", Short: "Show what has happened to a sandbox",
		Long: "Show the lifecycle of a sandbox, the oldest event first: who made it, when it started, what ran in it, and how it ended.",
		Example: `  sandgate events dev
  sandgate events dev --reverse --limit 10`,
		Args: exactly("the id or name of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 100 {
				return usagef("--limit: must be 1 to 100")
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Events(cmd.Context(), args[0], limit, reverse)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(list)
			}
			t := table{header: []string{"SEQ", "TIME", "EVENT", "BY", "DETAILS"}}
			for _, e := range list.Events {
				details := ""
				if len(e.Event) > 0 {
					raw, err := json.Marshal(e.Event)
					if err != nil {
						return err
					}
					details = string(raw)
				}
				t.add(strconv.FormatInt(e.Seq, 10), e.CreatedAt.Format(time.RFC3339), e.Type, e.Principal, details)
			}
			return t.write(a.Stdout)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most results, up to 100")
	cmd.Flags().BoolVar(&reverse, "reverse", false, "the newest first")
	jsonFlag(cmd, &asJSON)
	return cmd
}
