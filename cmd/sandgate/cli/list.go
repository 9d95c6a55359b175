package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

// pageFlags are the flags of every list that is sorted and paged.
type pageFlags struct {
	limit, offset   int
	sort, direction string
}

func (f *pageFlags) register(cmd *cobra.Command, fields string) {
	fl := cmd.Flags()
	fl.IntVar(&f.limit, "limit", 50, "most results, up to 100")
	fl.IntVar(&f.offset, "offset", 0, "results to skip")
	fl.StringVar(&f.sort, "sort", "created", "sort by "+fields)
	fl.StringVar(&f.direction, "direction", "desc", "asc or desc")
}

func (f *pageFlags) check() error {
	switch {
	case f.limit < 1 || f.limit > 100:
		return usagef("--limit: must be 1 to 100")
	case f.offset < 0:
		return usagef("--offset: must be 0 or more")
	}
	return nil
}

func (a *app) listCommand() *cobra.Command {
	var page pageFlags
	var r api.ListRequest
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List sandboxes",
		Long: "List your sandboxes: those that live and those that have failed. Of a server you are admin of, everybody's.",
		Example: `  sandgate list
  sandgate list --status idle,running --sort name --direction asc
  sandgate list --all                       # those that have ended, too
  sandgate list --json | jq -r '.sandboxes[].sandboxId'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.check(); err != nil {
				return err
			}
			r.Sort, r.Direction, r.Limit, r.Offset = page.sort, page.direction, page.limit, page.offset
			if all && len(r.Statuses) == 0 {
				for _, s := range []sandbox.Status{sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Suspended, sandbox.Terminated, sandbox.Failed, sandbox.Deleted} {
					r.Statuses = append(r.Statuses, string(s))
				}
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.List(cmd.Context(), r)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(list)
			}
			return a.printSandboxes(list, page)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&r.Statuses, "status", nil, "only these: creating, idle, running, paused, stopping, suspended, terminated, failed, deleted")
	fl.StringVar(&r.Name, "name", "", "only the one of this name")
	fl.StringVar(&r.Mode, "mode", "", "only oneshot or interactive")
	fl.StringVar(&r.ProjectID, "project-id", "", "only those of a project")
	fl.BoolVarP(&all, "all", "a", false, "also those that have ended")
	page.register(cmd, "name, created, updated, status, mode or execution_count")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printSandboxes(list api.SandboxList, page pageFlags) error {
	if len(list.Sandboxes) == 0 {
		switch {
		case page.offset > 0:
			a.note("there are no more; %d in all", list.Total)
		default:
			a.note("no sandboxes; make one with: sandgate create")
		}
		return nil
	}
	t := table{header: []string{"ID", "NAME", "STATUS", "RUNTIME", "MODE", "EXECUTIONS", "CREATED"}}
	t.style = func(column int, cell string) string {
		if column == 2 {
			return a.statusStyle(cell)
		}
		return cell
	}
	for _, s := range list.Sandboxes {
		name, runtime := s.Name, ""
		if name == "" {
			name = "-"
		}
		if s.Runtime != nil {
			runtime = s.Runtime.Name
		}
		t.add(s.SandboxID, name, s.Status, runtime, s.Mode, strconv.Itoa(s.Executions), a.age(s.CreatedAt))
	}
	if err := t.write(a.Stdout); err != nil {
		return err
	}
	if shown := page.offset + len(list.Sandboxes); shown < list.Total {
		a.note("%d of %d; for the next: --offset %d", len(list.Sandboxes), list.Total, shown)
	}
	return nil
}
