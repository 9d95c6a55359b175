package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// copied is what `fs cp` prints with --json.
type copied struct {
	Source             string   `json:"source"`
	Destination        string   `json:"destination"`
	BytesTransferred   int64    `json:"bytesTransferred"`
	FilesTransferred   int64    `json:"filesTransferred"`
	DirectoriesCreated []string `json:"directoriesCreated"`
}

// copying is one run of `fs cp`.
type copying struct {
	a                 *app
	c                 *api.Client
	recursive, strict bool
	done              copied
}

func (a *app) fsCopyCommand() *cobra.Command {
	var recursive, strict, asJSON bool
	var timeout string
	cmd := &cobra.Command{
		Use: "cp <source> <destination> [flags]", Aliases: []string{"copy"}, Short: "Copy files to and from a sandbox",
		Long: `Copy a file to or from a sandbox, or with -r a folder. The side in the sandbox is
written SANDBOX:PATH, the other is a path of this machine; - is standard input or
output. Folders that are missing are made, unless --strict is given. A file goes
into a destination that is a folder or ends with a slash; the content of a folder
becomes the content of the destination, or of a folder of its name in one that
ends with a slash.`,
		Example: `  sandgate fs cp ./file.txt dev:/workspace/file.txt
  sandgate fs cp dev:output.json ./output.json
  sandgate fs cp -r ./src dev:/workspace/src
  sandgate fs cp dev:/etc/os-release -
  sandgate fs cp --strict ./config.json dev:/etc/app/config.json --json`,
		Args: exactly("what to copy", "where to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := duration("timeout", timeout); err != nil {
				return err
			}
			fromBox, fromPath, in := boxPath(args[0])
			toBox, toPath, out := boxPath(args[1])
			if in == out {
				return usagef("one of the two has to be in a sandbox, SANDBOX:PATH, and the other on this machine; for a path with a colon write ./%s", args[0])
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) (err error) {
				if timeout != "" {
					d, _ := sandbox.ParseDuration(timeout) // was checked
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, d)
					defer cancel()
				}
				k := copying{a: a, c: c, recursive: recursive, strict: strict, done: copied{Source: args[0], Destination: args[1], DirectoriesCreated: []string{}}}
				if out {
					err = k.upload(ctx, args[0], toBox, toPath)
				} else {
					err = k.download(ctx, fromBox, fromPath, args[1])
				}
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					return fault.Wrap(err, fault.Timeout, "the copying took longer than %s", timeout)
				case err != nil:
					return err
				case args[1] == "-":
					return nil
				case asJSON:
					return a.printJSON(k.done)
				}
				_, err = fmt.Fprintf(a.Stdout, "copied %d files (%s)\n", k.done.FilesTransferred, size(k.done.BytesTransferred))
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&recursive, "recursive", "r", false, "copy folders with all that is in them")
	fl.BoolVar(&strict, "strict", false, "fail when the folder of the destination does not exist")
	fl.StringVar(&timeout, "timeout", "", "give up after so long, such as 5m")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// boxPath splits SANDBOX:PATH. What has a slash or a dot before the colon is a
// path of this machine.
func boxPath(arg string) (box, inside string, ok bool) {
	box, inside, ok = strings.Cut(arg, ":")
	if !ok || box == "" || strings.ContainsAny(box, "/.~") {
		return "", "", false
	}
	return box, inside, true
}

// into is the destination of something of that name: in a folder, or itself.
func into(dest, name string, isDir bool) string {
	if dest == "" || isDir || strings.HasSuffix(dest, "/") {
		return path.Join(dest, name)
	}
	return dest
}

// upload copies from this machine.
func (k *copying) upload(ctx context.Context, from, box, to string) error {
	if from != "-" {
		if err := k.a.localFiles(from); err != nil {
			return err
		}
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		if info.IsDir() {
			return k.uploadDir(ctx, from, box, to)
		}
		if !info.Mode().IsRegular() {
			return usagef("%s is neither a file nor a folder", from)
		}
	} else if to == "" || strings.HasSuffix(to, "/") {
		return usagef("give the name of the file to write, such as %s:%sfile", box, to)
	}
	dest := to
	if from != "-" {
		info, err := k.c.StatFile(ctx, box, to)
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) || isMissingBox(err) {
			return err
		}
		dest = into(to, filepath.Base(from), err == nil && info.IsDir)
	}
	in, err := k.a.openInput(from)
	if err != nil {
		return err
	}
	defer in.Close()
	o := api.PutOptions{Strict: k.strict}
	if f, ok := in.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		o.Mode = fmt.Sprintf("%04o", info.Mode().Perm())
	}
	done, err := k.c.PutFile(ctx, box, dest, o, in)
	if err != nil {
		return err
	}
	k.done.FilesTransferred, k.done.BytesTransferred = 1, done.BytesWritten
	k.done.DirectoriesCreated = append(k.done.DirectoriesCreated, done.DirectoriesCreated...)
	return nil
}

// isMissingBox tells that there is no such sandbox from that there is no such
// file in it.
func isMissingBox(err error) bool { return err != nil && fault.From(err).Kind == "sandbox" }

// uploadDir copies a folder of this machine, packed on the way.
func (k *copying) uploadDir(ctx context.Context, from, box, to string) error {
	if !k.recursive {
		return usagef("%s is a folder; copy it with -r", from)
	}
	abs, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if to == "" || strings.HasSuffix(to, "/") {
		to = path.Join(to, filepath.Base(abs))
	}
	info, err := k.c.StatFile(ctx, box, to)
	switch {
	case err == nil && !info.IsDir:
		return fault.New(fault.Exists, "%s:%s is there and is no folder", box, to).About("file")
	case fault.Is(err, fault.NotFound) && !isMissingBox(err):
		made, err := k.c.Mkdir(ctx, box, to, !k.strict)
		if err != nil {
			return err
		}
		k.done.DirectoriesCreated = append(k.done.DirectoriesCreated, made...)
	case err != nil:
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		totals, err := tree.Pack(ctx, abs, tree.Tar, w)
		if totals.Skipped > 0 {
			k.a.note("%d files were left out, %s among them: they cannot be read, or are sockets and the like", totals.Skipped, clean(totals.First))
		}
		_ = w.CloseWithError(err)
		packed <- err
	}()
	done, err := k.c.Upload(ctx, box, to, string(tree.Tar), r)
	cancel()
	_ = r.Close()
	if perr := <-packed; perr != nil && err == nil {
		err = perr
	}
	k.done.FilesTransferred, k.done.BytesTransferred = done.Files, done.Bytes
	return err
}

// download copies to this machine.
func (k *copying) download(ctx context.Context, box, from, to string) error {
	info, err := k.c.StatFile(ctx, box, from)
	if err != nil {
		return err
	}
	if to != "-" {
		if err := k.a.localFiles(to); err != nil {
			return err
		}
	}
	if info.IsDir {
		return k.downloadDir(ctx, box, from, info, to)
	}
	dest := to
	if to != "-" {
		here, err := os.Stat(to)
		dest = into(to, path.Base(info.Path), err == nil && here.IsDir())
		if err := k.makeHere(filepath.Dir(dest)); err != nil {
			return err
		}
	}
	mode, err := strconv.ParseUint(info.Mode, 8, 12)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the server's answer has no mode of %s", clean(from))
	}
	count := &counter{}
	err = k.a.writeOutput(dest, fs.FileMode(mode)&fs.ModePerm, func(w io.Writer) error {
		count.w = w
		return k.c.ReadFile(ctx, box, from, count)
	})
	if err == nil && to != "-" && !info.ModTime.IsZero() {
		_ = os.Chtimes(dest, time.Time{}, info.ModTime) // the content is what matters
	}
	k.done.FilesTransferred, k.done.BytesTransferred = 1, count.n
	return err
}

// makeHere makes a folder of this machine, and those above it, unless it is
// there.
func (k *copying) makeHere(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if k.strict {
		return fault.New(fault.NotFound, "there is no folder %s; make it, or leave out --strict", dir).About("file")
	}
	if up := filepath.Dir(dir); up != dir {
		if err := k.makeHere(up); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	k.done.DirectoriesCreated = append(k.done.DirectoriesCreated, dir)
	return nil
}

// downloadDir copies a folder of a sandbox. What comes is hostile: package
// tree keeps it inside of the destination.
func (k *copying) downloadDir(ctx context.Context, box, from string, info api.FileInfo, to string) error {
	switch {
	case !k.recursive:
		return usagef("%s is a folder; copy it with -r", from)
	case to == "-":
		return usagef("a folder cannot be written to standard output; use: fs download %s - --path %s", box, from)
	}
	if strings.HasSuffix(to, "/") {
		to = filepath.Join(to, path.Base(info.Path))
	}
	if k.strict {
		if _, err := os.Stat(filepath.Dir(to)); err != nil {
			return err
		}
	}
	k.strict = false // of the folder itself
	if err := k.makeHere(to); err != nil {
		return err
	}
	dir, err := tree.OpenDir(to)
	if err != nil {
		return err
	}
	defer dir.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := k.c.Download(ctx, box, from, string(tree.Tar), w)
		_ = w.CloseWithError(err)
		sent <- err
	}()
	totals, err := tree.Unpack(ctx, dir, tree.Tar, r, tree.Limits{}, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	cancel()
	_ = r.Close()
	if serr := <-sent; serr != nil && err == nil {
		err = serr
	}
	k.done.FilesTransferred, k.done.BytesTransferred = totals.Files+totals.Links, totals.Bytes
	return err
}
