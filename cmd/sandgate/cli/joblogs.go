package cli

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sandgate/sandgate/sandbox/api"
)

// maxTail bounds --tail, as the server does.
const maxTail = 1 << 20

func (a *app) jobLogsCommand() *cobra.Command {
	var follow, asJSON bool
	var o api.StreamOptions
	cmd := &cobra.Command{
		Use: "logs <sandbox> <job> [flags]", Aliases: []string{"log"}, Short: "Show what a job has printed",
		Long: `Show what a job has printed, its standard output and its standard error apart.
With --follow it goes on until the job has ended; Ctrl-C ends the showing, not
the job.`,
		Example: `  sandgate job logs dev job_4k2m7qa3bc5d --tail 20
  sandgate job logs dev job_4k2m7qa3bc5d -f --timestamps 2>/dev/null`,
		Args: exactly(argSandbox, argJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Tail < 0 || o.Tail > maxTail {
				return usagef("--tail: must be 0 to %d", maxTail)
			}
			o.NoFollow = !follow
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				j, err := c.Job(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				var stdout, stderr capture
				to := [2]io.Writer{a.Stdout, a.Stderr}
				if asJSON {
					to = [2]io.Writer{&stdout, &stderr}
				}
				if err := readBoth(ctx, c, j, o, to); err != nil || !asJSON {
					return err
				}
				return a.printJSON(struct {
					JobID           string `json:"jobId"`
					Stdout          string `json:"stdout"`
					Stderr          string `json:"stderr"`
					OutputTruncated bool   `json:"outputTruncated,omitempty"`
				}{j.JobID, stdout.String(), stderr.String(), j.OutputTruncated || stdout.cut || stderr.cut})
			})
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	fl.BoolVarP(&o.Timestamps, "timestamps", "t", false, "begin each line with the time it was printed at")
	fl.IntVar(&o.Tail, "tail", 0, "only so many last lines of what there is (default: all)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readBoth copies both streams of a job.
func readBoth(ctx context.Context, c *api.Client, j api.Job, o api.StreamOptions, to [2]io.Writer) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, url := range []string{j.StdoutStreamURL, j.StderrStreamURL} {
		g.Go(func() error { return c.ReadStreamWith(ctx, url, o, to[i]) })
	}
	err := g.Wait()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return exitCodeError{code: exitPipe}
	}
	return err
}
