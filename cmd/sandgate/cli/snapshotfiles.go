package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) snapshotDiffCommand() *cobra.Command {
	var file string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "diff <from> <to> [flags]", Short: "Compare the files of snapshots, checkpoints, sandboxes and runtimes",
		Long: `Show which files the second has and the first has not (A), which differ (M), and
which it has not (D). Each is a runtime (runtime:NAME), a snapshot (snp_… or
snapshot:TAG), a sandbox as it is now, or a checkpoint of one
(SANDBOX@CHECKPOINT). With --file it shows how one text file differs.`,
		Example: `  sandgate snapshot diff snapshot:v1 snapshot:v2
  sandgate snapshot diff dev@before dev --file app/config.json
  sandgate snapshot diff runtime:base:latest dev --json`,
		Args: exactly("what to compare", "what to compare it with"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if _, err := sandbox.ParsePoint(arg); err != nil {
					return usageError{err}
				}
			}
			if limit < 1 || limit > 100_000 {
				return usagef("--limit: must be 1 to 100000")
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if file != "" {
					text, err := c.DiffFile(ctx, args[0], args[1], file)
					if err != nil {
						return err
					}
					if asJSON {
						return a.printJSON(api.FileDiff{Path: file, Diff: text})
					}
					return a.printText(text)
				}
				list, err := c.Diff(ctx, args[0], args[1], limit, 0)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				return a.printChanges(list)
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "show the lines that differ in this text file")
	cmd.Flags().IntVar(&limit, "limit", 10_000, "most files to show, up to 100000")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printText writes text of a sandbox a line at a time: without what could steer
// a terminal, but with its tabs when it goes elsewhere.
func (a *app) printText(text string) error {
	if !a.StdoutTTY {
		_, err := io.WriteString(a.Stdout, text)
		return err
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(a.Stdout, clean(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printChanges(list api.ChangeList) error {
	letters := map[string]string{string(sandbox.Added): "A", string(sandbox.Changed): "M", string(sandbox.Removed): "D"}
	for _, c := range list.Changes {
		name := c.Path
		if c.Type == "dir" {
			name += "/"
		}
		if c.Why != "" && c.Why != "content" {
			name += " (" + c.Why + ")"
		}
		if _, err := fmt.Fprintln(a.Stdout, letters[c.Kind]+" "+clean(name)); err != nil {
			return err
		}
	}
	if left := list.Total - len(list.Changes); left > 0 {
		a.note("%d more; show them with --limit", left)
	}
	return nil
}

func (a *app) snapshotExportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "export <snapshot> <file> [flags]", Short: "Write a snapshot to a file, to import it elsewhere",
		Long: `Write a snapshot, with all that is under it, to a file: an OCI image layout in a
tar archive, which other tools read, too. - is standard output.`,
		Example: `  sandgate snapshot export python-ml ./python-ml.tar
  ssh gateway snapshot export python-ml - | ssh other snapshot import -`,
		Args: exactly(argSnapshot, "the file to write; - is standard output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				count := &counter{}
				err := a.writeOutput(args[1], 0o600, func(w io.Writer) error {
					count.w = w
					return c.ExportSnapshot(ctx, args[0], count)
				})
				if err != nil || args[1] == "-" {
					return err
				}
				if asJSON {
					return a.printJSON(map[string]any{"snapshot": args[0], "output": args[1], "bytes": count.n})
				}
				_, err = fmt.Fprintf(a.Stdout, "wrote %s (%s)\n", clean(args[1]), size(count.n))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) snapshotImportCommand() *cobra.Command {
	var f snapshotFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "import <file> [flags]", Short: "Make a snapshot of an exported one",
		Long: `Make a snapshot of a file that export has written, here or on another server, and
print its id. What is not given is as in the file. - is standard input.`,
		Example: `  sandgate snapshot import ./python-ml.tar --tag python-ml
  ssh gateway snapshot import - <python-ml.tar`,
		Args: exactly("the file; - is standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := a.openInput(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := c.ImportSnapshot(ctx, in, f.r, f.org)
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
