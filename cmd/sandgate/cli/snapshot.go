package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

const argSnapshot = "the id or tag of a snapshot; see: sandgate snapshot list"

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Aliases: []string{"snapshots", "snap"}, Short: "Keep the files of sandboxes, to make others from",
		Long: `Keep the files of a sandbox as a snapshot, and make sandboxes from it. A snapshot
never changes. It holds files alone: no processes, and no environment variables.`,
		Example: `  sandgate snapshot create dev --tag python-ml
  sandgate create --snapshot python-ml
  sandgate snapshot diff runtime:base:latest snapshot:python-ml
  sandgate snapshot export python-ml ./python-ml.tar`,
	}
	a.group(cmd)
	cmd.AddCommand(
		a.snapshotCreateCommand(), a.snapshotListCommand(), a.snapshotGetCommand(), a.snapshotTagCommand(), a.snapshotDeleteCommand(),
		a.snapshotLineageCommand(), a.snapshotDiffCommand(), a.snapshotExportCommand(), a.snapshotImportCommand(),
	)
	return cmd
}

// snapshotFlags are what a new snapshot is called.
type snapshotFlags struct {
	r   api.SnapshotRequest
	org string
}

func (f *snapshotFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.r.Name, "name", "", "name, for people")
	fl.StringVar(&f.r.Description, "description", "", "description")
	fl.StringVar(&f.r.Tag, "tag", "", "tag, which moves here from the snapshot that has it; - is none (default latest)")
	fl.BoolVar(&f.r.Public, "public", false, "let everybody make sandboxes from it")
	fl.StringVar(&f.r.ProjectID, "project-id", "", "project it belongs to")
	fl.StringVar(&f.org, "org-id", "", "organization it belongs to")
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	var f snapshotFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create <sandbox> [flags]", Aliases: []string{"new"}, Short: "Keep the files of a sandbox as a snapshot",
		Long: `Keep the files of a sandbox, which may run or be paused, as a snapshot, and print
its id.`,
		Example: `  sandgate snapshot create dev
  sandgate snapshot create dev --tag python-ml-v2 --name python-ml
  sandgate snapshot create dev --public`,
		Args: exactly(argSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := c.CreateSnapshot(ctx, args[0], f.r, f.org)
				if err != nil {
					return err
				}
				return a.printMade(p, asJSON)
			})
		},
	}
	f.register(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printMade prints the id of a new snapshot.
func (a *app) printMade(p api.Snapshot, asJSON bool) error {
	if asJSON {
		return a.printJSON(p)
	}
	if a.StdoutTTY {
		_, err := fmt.Fprintf(a.Stdout, "✓ made snapshot %s (%d files, %s)\n", clean(withName(p.SnapshotID, p.Tag)), p.FileCount, size(p.SizeBytes))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, clean(p.SnapshotID))
	return err
}

func (a *app) snapshotListCommand() *cobra.Command {
	var page pageFlags
	var r api.SnapshotListRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List snapshots",
		Long: "List your snapshots, or with --public those that everybody may use. Of a server you are admin of, everybody's.",
		Example: `  sandgate snapshot list
  sandgate snapshot list --sandbox dev
  sandgate snapshot list --sort size --direction desc --json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.check(); err != nil {
				return err
			}
			r.Sort, r.Direction, r.Limit, r.Offset = page.sort, page.direction, page.limit, page.offset
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.Snapshots(ctx, r)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				if len(list.Snapshots) == 0 {
					a.note("no snapshots; make one with: sandgate snapshot create <sandbox>")
					return nil
				}
				if err := a.printSnapshots(list.Snapshots); err != nil {
					return err
				}
				a.noteMore(page.offset, len(list.Snapshots), list.Total)
				return nil
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&r.Sandbox, "sandbox", "", "only those taken from a sandbox")
	fl.StringVar(&r.Tag, "tag", "", "only the one with a tag")
	fl.BoolVar(&r.Public, "public", false, "public ones, of everybody")
	page.register(cmd, "name, created, size or files")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printSnapshots(all []api.Snapshot) error {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	t := table{header: []string{"ID", "TAG", "NAME", "SIZE", "FILES", "RUNTIME", "PUBLIC", "CREATED"}}
	for _, p := range all {
		public := "no"
		if p.Public {
			public = "yes"
		}
		t.add(p.SnapshotID, dash(p.Tag), dash(p.Name), size(p.SizeBytes), strconv.Itoa(p.FileCount), p.Runtime, public, a.age(p.CreatedAt))
	}
	return t.write(a.Stdout)
}

func (a *app) snapshotGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <snapshot> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a snapshot",
		Long:    "Describe a snapshot, given its id or its tag: what it holds, what it was made from, and the sandboxes made from it.",
		Example: "  sandgate snapshot get python-ml\n  sandgate snapshot get snp_4k2m7qa3bc5d --json",
		Args:    exactly(argSnapshot),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := c.Snapshot(ctx, args[0])
				if err != nil {
					return err
				}
				made, err := c.List(ctx, api.ListRequest{Snapshot: p.SnapshotID, Limit: 100})
				if err != nil {
					return err
				}
				if asJSON {
					ids := []string{}
					for _, s := range made.Sandboxes {
						ids = append(ids, s.SandboxID)
					}
					return a.printJSON(struct {
						api.Snapshot
						Sandboxes []string `json:"sandboxes"`
					}{p, ids})
				}
				return a.printSnapshot(p, made)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printSnapshot(p api.Snapshot, made api.SandboxList) error {
	public := "no"
	if p.Public {
		public = "yes"
	}
	pairs := []pair{
		{"id", p.SnapshotID}, {"tag", p.Tag}, {"name", p.Name}, {"description", p.Description}, {"public", public},
		{"size", size(p.SizeBytes)}, {"files", strconv.Itoa(p.FileCount)}, {"runtime", p.Runtime}, {"engine", p.Engine},
		{"parent", p.ParentSnapshotID}, {"taken from", p.SandboxID}, {"created", a.moment(p.CreatedAt)},
	}
	if p.User != nil {
		pairs = append(pairs, pair{"owner", p.User.ID})
	}
	if p.Project != nil {
		pairs = append(pairs, pair{"project", p.Project.ID})
	}
	if p.Org != nil {
		pairs = append(pairs, pair{"org", p.Org.ID})
	}
	var names []string
	for _, s := range made.Sandboxes {
		names = append(names, withName(s.SandboxID, s.Name))
	}
	if left := made.Total - len(names); left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	pairs = append(pairs, pair{"sandboxes", strings.Join(names, ", ")})
	return describe(a.Stdout, pairs, nil)
}

func (a *app) snapshotTagCommand() *cobra.Command {
	var remove, asJSON bool
	cmd := &cobra.Command{
		Use: "tag <snapshot> [tag] [flags]", Short: "Give a snapshot a tag",
		Long: "Give a snapshot a tag, which moves here from the snapshot that has it, or take its tag away with --clear.",
		Example: `  sandgate snapshot tag snp_4k2m7qa3bc5d v2.0
  sandgate snapshot tag v2.0 --clear`,
		Args: func(cmd *cobra.Command, args []string) error {
			if remove {
				return exactly(argSnapshot)(cmd, args)
			}
			return exactly(argSnapshot, "the tag, or --clear")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			tag := ""
			if !remove {
				tag = args[1]
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := c.TagSnapshot(ctx, args[0], tag)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(p)
				}
				line := p.SnapshotID + " is " + p.Tag
				if p.Tag == "" {
					line = p.SnapshotID + " has no tag"
				}
				_, err = fmt.Fprintln(a.Stdout, clean(line))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&remove, "clear", false, "take the tag away")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) snapshotDeleteCommand() *cobra.Command {
	var cascade, confirm, asJSON bool
	cmd := &cobra.Command{
		Use: "delete <snapshot>... [flags]", Aliases: []string{"rm", "del", "remove", "destroy"}, Short: "Delete snapshots",
		Long: `Delete snapshots. One that sandboxes or other snapshots were made from is kept;
with --cascade these snapshots go, too, the sandboxes never. On a terminal it
asks first, unless --confirm is given.`,
		Example: `  sandgate snapshot delete snp_4k2m7qa3bc5d
  sandgate snapshot delete python-ml --cascade --confirm`,
		Args: atLeast(argSnapshot),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.StdinTTY && !confirm {
				if ok, err := a.ask(cmd, "Delete "+strings.Join(args, ", ")+"?"); err != nil || !ok {
					return err
				}
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				return a.deleteEach(args, asJSON, func(ref string) error { return c.DeleteSnapshot(ctx, ref, cascade) })
			})
		},
	}
	cmd.Flags().BoolVar(&cascade, "cascade", false, "with the snapshots made from it")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "do not ask")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) snapshotLineageCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "lineage <snapshot> [flags]", Short: "Show what a snapshot was made from",
		Long:    "Show a snapshot, the one its sandbox was made from, and so on: the oldest last.",
		Example: "  sandgate snapshot lineage python-ml",
		Args:    exactly(argSnapshot),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				line, err := c.Lineage(ctx, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(line)
				}
				return a.printSnapshots(line.Lineage)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
