package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) auditCommand() *cobra.Command {
	var q sandbox.AuditQuery
	var kinds []string
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audit [flags]", Short: "Show who did what: the audit log, for admins",
		Long: `Show the last records of the audit log, the oldest first: who came from where
with which key, what they did in which sandbox, how long, and how it ended. With
--follow it goes on with what happens from now on, until Ctrl-C; with --json it
prints the records as they are in the file, one line for each.`,
		Example: `  sandgate audit --since 1h
  sandgate audit --kind refused --limit 20
  sandgate audit --follow --sandbox dev
  ssh gateway audit --json --principal alice | jq .`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 || q.Limit > 10000 {
				return usagef("--limit: must be 1 to 10000")
			}
			var err error
			if q.Since, err = a.sinceFlag(since); err != nil {
				return flagError("since", err)
			}
			for _, k := range kinds {
				q.Kinds = append(q.Kinds, sandbox.AuditKind(k))
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				err := c.Audit(ctx, q, func(r sandbox.AuditRecord) error { return a.printAudit(r, asJSON) })
				if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
					return exitCodeError{code: exitPipe}
				}
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&q.Principal, "principal", "", "of one principal")
	fl.StringVar(&q.Sandbox, "sandbox", "", "of one sandbox")
	fl.StringSliceVar(&kinds, "kind", nil, "of these kinds: login, join, refused, connect, disconnect, logout, start, end, change, reload")
	fl.StringVar(&since, "since", "", "not older: a duration such as 2h, or a time such as 2026-01-31T12:00:00Z")
	fl.IntVar(&q.Limit, "limit", 100, "most records, the last ones; up to 10000")
	fl.BoolVarP(&q.Follow, "follow", "f", false, "go on with what happens from now on")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// sinceFlag reads a moment: how long ago, or when.
func (a *app) sinceFlag(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	d, err := sandbox.ParseDuration(s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a duration such as 2h nor a time such as 2026-01-31T12:00:00Z", s)
	}
	return a.Now().Add(-d), nil
}

// printAudit prints one record on a line.
func (a *app) printAudit(r sandbox.AuditRecord, asJSON bool) error {
	if asJSON {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Stdout, string(escapeControls(raw)))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, auditLine(r))
	return err
}

// auditLine is a record for a person.
func auditLine(r sandbox.AuditRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-10s  %-10s  %-12s", r.Time.Local().Format("2006-01-02 15:04:05"), r.Kind, r.What, or(r.Principal, "-"))
	add := func(name, value string) {
		if value != "" {
			b.WriteString("  " + name + value)
		}
	}
	add("", r.Sandbox)
	add("session ", r.Session)
	add("", r.Target)
	add("of ", r.Owner)
	if r.Command != "" {
		add("", strconv.Quote(r.Command))
	}
	add("from ", r.Remote)
	switch r.Kind {
	case sandbox.AuditLogin, sandbox.AuditRefused:
		add("key ", r.Key)
		add("certificate ", r.Certificate)
		add("as ", r.User)
	}
	if r.Exit != nil {
		add("exit ", strconv.Itoa(*r.Exit))
	}
	add("signal ", r.Signal)
	if r.DurationMS > 0 {
		add("in ", (time.Duration(r.DurationMS) * time.Millisecond).String())
	}
	if r.In > 0 || r.Out > 0 {
		add("", size(r.In)+" in, "+size(r.Out)+" out")
	}
	if r.Kind == sandbox.AuditDisconnect {
		add("", fmt.Sprintf("%d sessions, %d forwards", r.Sessions, r.Forwards))
	}
	add(": ", r.Reason)
	if r.Unlogged > 0 {
		add("", fmt.Sprintf("(%d more like it)", r.Unlogged))
	}
	return clean(b.String())
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
