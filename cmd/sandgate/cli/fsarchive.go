package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func (a *app) fsDownloadCommand() *cobra.Command {
	var path, format string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "download <sandbox> <output-file> [flags]", Aliases: []string{"dl"}, Short: "Fetch files of a sandbox as an archive",
		Long: `Fetch a folder of a sandbox, or its /workspace, as one archive. - as the file is
standard output. Sockets, devices and what cannot be read are left out.`,
		Example: `  sandgate fs download dev ./backup.tar.gz
  sandgate fs download dev ./src.zip --path /workspace/src --format zip
  ssh gateway fs download dev - | tar xz`,
		Args: exactly(argSandbox, "the file to write; - is standard output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := archiveFormat(format); err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				count := &counter{}
				err := a.writeOutput(args[1], 0o644, func(w io.Writer) error {
					count.w = w
					return c.Download(ctx, args[0], path, format, count)
				})
				if err != nil || args[1] == "-" {
					return err
				}
				if asJSON {
					return a.printJSON(map[string]any{"sandboxId": args[0], "output": args[1], "bytes": count.n, "format": format})
				}
				_, err = fmt.Fprintf(a.Stdout, "wrote %s (%s)\n", clean(args[1]), size(count.n))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&path, "path", "", "folder or file to fetch (default /workspace)")
	cmd.Flags().StringVar(&format, "format", "tar.gz", "tar.gz, tar or zip")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// archiveFormat checks --format.
func archiveFormat(format string) error {
	if format != "" && !guest.Format(format).Valid() {
		return flagError("format", fmt.Errorf("%q is not a format: use tar.gz, tar or zip", format))
	}
	return nil
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// writeOutput writes a file of this machine: it appears whole, or not at all.
// "-" is standard output, which is all there is over ssh.
func (a *app) writeOutput(path string, mode os.FileMode, write func(io.Writer) error) error {
	if path == "-" {
		return write(a.Stdout)
	}
	if err := a.localFiles(path); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return usagef("%s is a folder; name a file", path)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // a pipe, a device
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sandgate-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = write(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// localFiles refuses to touch files of this machine for somebody who came over
// ssh: they are not theirs.
func (a *app) localFiles(path string) error {
	if a.Local {
		return nil
	}
	return usagef("%q would be a file of the gateway, not of your machine; write - and redirect standard input or output, or use scp", path)
}

func (a *app) fsUploadCommand() *cobra.Command {
	var path, format string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "upload <sandbox> <archive-file> [flags]", Aliases: []string{"ul"}, Short: "Unpack an archive into a sandbox",
		Long: `Unpack an archive into a folder of a sandbox, or its /workspace: tar, tar.gz or
zip, told by its content. It is unpacked inside the sandbox; an archive that
would write outside of the folder is refused. - is standard input.`,
		Example: `  sandgate fs upload dev ./project.tar.gz
  sandgate fs upload dev ./deps.zip --path /workspace/node_modules
  tar c . | ssh gateway fs upload dev -`,
		Args: exactly(argSandbox, "the archive; - is standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := archiveFormat(format); err != nil {
				return err
			}
			in, err := a.openInput(args[1])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				done, err := c.Upload(ctx, args[0], path, format, bufio.NewReaderSize(in, 64<<10))
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(done)
				}
				_, err = fmt.Fprintf(a.Stdout, "unpacked %d files (%s)\n", done.Files, size(done.Bytes))
				if done.Skipped > 0 {
					a.note("%d entries were skipped: devices and the like", done.Skipped)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&path, "path", "", "folder to unpack into; it is made when it is missing (default /workspace)")
	cmd.Flags().StringVar(&format, "format", "", "tar.gz, tar or zip (default: told by the content)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// openInput opens a file of this machine to read. "-" is standard input.
func (a *app) openInput(path string) (io.ReadCloser, error) {
	if path == "-" {
		if a.Stdin == nil {
			return nil, usagef("there is no standard input")
		}
		return io.NopCloser(a.Stdin), nil
	}
	if err := a.localFiles(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, usagef("%s is a folder; copy it with: fs cp -r", path)
	}
	return f, nil
}
