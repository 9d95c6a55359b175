package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) fsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fs", Aliases: []string{"files", "file"}, Short: "Work with the files of a sandbox",
		Long: `Work with the files of a sandbox. Relative paths begin at /workspace. Whatever a
path leads to, it stays inside the sandbox. A paused sandbox is resumed.`,
		Example: `  sandgate fs cp ./main.py dev:/workspace/
  sandgate fs ls dev -l
  sandgate fs download dev ./backup.tar.gz`,
	}
	a.group(cmd)
	cmd.AddCommand(a.fsCopyCommand(), a.fsListCommand(), a.fsMkdirCommand(), a.fsRemoveCommand(), a.fsRemoveDirCommand(), a.fsDownloadCommand(), a.fsUploadCommand())
	return cmd
}

func (a *app) fsListCommand() *cobra.Command {
	var long, asJSON bool
	var o api.ListFilesOptions
	cmd := &cobra.Command{
		Use: "ls <sandbox> [path] [flags]", Aliases: []string{"list"}, Short: "List the files in a folder of a sandbox",
		Example: `  sandgate fs ls dev
  sandgate fs ls dev /workspace/src -l
  sandgate fs ls dev -r --json | jq -r '.files[].path'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				args = args[:1] // an empty path is the workspace
			}
			return exactly(argSandbox)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) > 1 {
				path = args[1]
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.ListFiles(ctx, args[0], path, o)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				return a.printFiles(list, long)
			})
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&long, "long", "l", false, "with permissions, sizes and times")
	fl.BoolVarP(&o.Recursive, "recursive", "r", false, "also what is in the folders")
	fl.IntVar(&o.Limit, "limit", 10_000, "most files, up to 50000")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printFiles(list api.FileList, long bool) error {
	t := table{}
	for _, f := range list.Files {
		name := f.Path
		if f.IsDir {
			name += "/"
		}
		if !long {
			if _, err := fmt.Fprintln(a.Stdout, clean(name)); err != nil {
				return err
			}
			continue
		}
		if f.IsSymlink {
			name += " -> " + f.LinkTarget
		}
		t.add(f.Mode, size(f.Size), f.ModTime.Format(time.RFC3339), name)
	}
	if long && len(t.rows) > 0 {
		t.header = []string{"MODE", "SIZE", "CHANGED", "NAME"}
		if err := t.write(a.Stdout); err != nil {
			return err
		}
	}
	if list.More {
		a.note("there is more; ask for it with --limit")
	}
	if list.Skipped > 0 {
		a.note("%d folders could not be read", list.Skipped)
	}
	return nil
}

func (a *app) fsMkdirCommand() *cobra.Command {
	var parents, asJSON bool
	cmd := &cobra.Command{
		Use: "mkdir <sandbox> <path> [flags]", Short: "Make a folder in a sandbox",
		Example: "  sandgate fs mkdir dev /workspace/output\n  sandgate fs mkdir dev data/processed -p",
		Args:    exactly(argSandbox, "the path of the folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				made, err := c.Mkdir(ctx, args[0], args[1], parents)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(struct {
						Path string `json:"path"`
						api.MadeDirs
					}{args[1], api.MadeDirs{DirectoriesCreated: made}})
				}
				for _, dir := range made {
					if _, err := fmt.Fprintln(a.Stdout, "made "+clean(dir)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make those above it, too; one that exists is no error")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) fsRemoveCommand() *cobra.Command {
	return a.fsRemover(&cobra.Command{
		Use: "rm <sandbox> <path> [flags]", Aliases: []string{"del", "delete", "remove"}, Short: "Remove a file of a sandbox",
		Long:    "Remove a file of a sandbox. For a folder use rmdir, for the sandbox itself delete.",
		Example: "  sandgate fs rm dev /workspace/temp.txt",
	}, (*api.Client).RemoveFile)
}

func (a *app) fsRemoveDirCommand() *cobra.Command {
	var recursive bool
	cmd := a.fsRemover(&cobra.Command{
		Use: "rmdir <sandbox> <path> [flags]", Short: "Remove a folder of a sandbox",
		Example: "  sandgate fs rmdir dev /workspace/old\n  sandgate fs rmdir dev /workspace/cache -r",
	}, func(c *api.Client, ctx context.Context, ref, path string) (bool, error) {
		return c.RemoveDir(ctx, ref, path, recursive)
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "with all that is in it")
	return cmd
}

// fsRemover completes a command that removes a path.
func (a *app) fsRemover(cmd *cobra.Command, remove func(*api.Client, context.Context, string, string) (bool, error)) *cobra.Command {
	var asJSON bool
	cmd.Args = exactly(argSandbox, "the path to remove")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
			found, err := remove(c, ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Path string `json:"path"`
					api.Removed
				}{args[1], api.Removed{Found: found}})
			}
			line := "removed " + args[1]
			if !found {
				line = args[1] + " was not there"
			}
			_, err = fmt.Fprintln(a.Stdout, clean(line))
			return err
		})
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
