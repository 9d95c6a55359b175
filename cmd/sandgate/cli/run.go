package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) runCommand() *cobra.Command {
	var f createFlags
	var timeout string
	var quiet, noStdin, timestamps, asJSON bool
	cmd := &cobra.Command{
		Use: "run [flags] -- <command>", Short: "Run one command in a sandbox of its own",
		Long: `Make a sandbox, run one command in it, and delete the sandbox, whatever happens,
also when this program dies. Streams, Ctrl-C and exit codes are as with exec.`,
		Example: `  sandgate run -- echo "Hello, World!"
  sandgate run --timeout 10s -- sh -c 'sleep 5 && echo done'
  sandgate run --memory 512Mi --file main.py:./main.py -- python3 main.py
  echo 'print(6 * 7)' | sandgate run -- python3 -`,
		Args:        atLeast("the command to run"),
		Annotations: map[string]string{takesCommand: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, usedStdin, err := f.request(a)
			if err != nil {
				return own(err)
			}
			if err := duration("timeout", timeout); err != nil {
				return own(err)
			}
			if timeout != "" {
				r.Timeout = &api.Timeouts{Execution: timeout}
			}
			r.Command = &api.Command{Exec: args, Mode: string(sandbox.Oneshot), Attended: true}
			r.Stream = &api.StreamConfig{Timestamps: timestamps}
			follow := following{}
			if a.hasStdin() && !noStdin && !usedStdin {
				follow.in = a.Stdin
				r.Stream.Stdin = api.StreamPipe
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return own(err)
			}
			defer c.Close()
			made, err := c.Create(cmd.Context(), r, f.org, a.progress(quiet))
			if err != nil {
				return own(err)
			}
			follow.client, follow.execution = c, made.ExecutionID
			follow.stdin, follow.stdout, follow.stderr = made.StdinStreamURL, made.StdoutStreamURL, made.StderrStreamURL
			err = a.show(cmd.Context(), follow, quiet, asJSON)
			a.finishRun(cmd.Context(), c, made.SandboxID)
			return err
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&timeout, "timeout", "", "end the command after so long, such as 30s (default: the server's)")
	fl.BoolVarP(&quiet, "quiet", "q", false, "show no output of the command")
	fl.BoolVar(&timestamps, "timestamps", false, "begin each line of output with the time it was printed at")
	fl.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// finishRun sees to it that the sandbox of a run is gone. The server deletes it
// when its command has ended; after every other end it is deleted here.
func (a *app) finishRun(ctx context.Context, c *api.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cancelTime)
	defer cancel()
	gone := []string{string(sandbox.Terminated), string(sandbox.Failed), string(sandbox.Deleted)}
	s, err := c.Status(ctx, id, gone, cancelTime)
	if err == nil && sandbox.Status(s.Status).Live() {
		err = c.Delete(ctx, id)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		a.note("sandbox %s may be left; delete it with: sandgate delete %s (%s)", id, id, oneLine(err.Error()))
	}
}
