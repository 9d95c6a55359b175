package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) execCommand() *cobra.Command {
	var timeout string
	var quiet, noStdin, timestamps, queue, asJSON bool
	cmd := &cobra.Command{
		Use: "exec <sandbox> [flags] -- <command>", Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox, in /workspace, and end with its exit code. Its
output comes as it is written, stdout and stderr apart. What is piped into exec
is piped into the command. Ctrl-C cancels the command. A sandbox runs one
command at a time: a second one fails, or waits with --queue. For several at
once use job, for a terminal ssh.

Exit codes: those of the command; 124 when it ran out of time, 125 when sandgate
itself failed, 130 when it was interrupted.`,
		Example: `  sandgate exec dev -- npm install zod
  sandgate exec dev --timeout 5m -- sh -c 'make && make test'
  tar c . | sandgate exec dev -- tar x
  sandgate exec dev --json -- id`,
		Args:        atLeast("the id or name of a sandbox"),
		Annotations: map[string]string{takesCommand: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if len(command) == 0 {
				return misused(cmd, "give the command to run; usage: %s", cmd.UseLine())
			}
			if err := duration("timeout", timeout); err != nil {
				return own(err)
			}
			r := api.ExecuteRequest{Command: command, Timeout: timeout, Queue: queue, Stream: &api.StreamConfig{Timestamps: timestamps}}
			f := following{}
			if a.hasStdin() && !noStdin {
				f.in = a.Stdin
				r.Stream.Stdin = api.StreamPipe
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return own(err)
			}
			defer c.Close()
			x, err := c.Execute(cmd.Context(), args[0], r)
			if err != nil {
				return own(err)
			}
			if x.AutoResumed {
				a.note("%s was paused; it was resumed for this command", clean(x.SandboxID))
			}
			f.client, f.execution = c, x.ExecutionID
			f.stdin, f.stdout, f.stderr = x.StdinStreamURL, x.StdoutStreamURL, x.StderrStreamURL
			return a.show(cmd.Context(), f, quiet, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&timeout, "timeout", "", "end the command after so long, such as 5m (default: the sandbox's, or the server's)")
	fl.BoolVarP(&quiet, "quiet", "q", false, "show no output of the command")
	fl.BoolVar(&timestamps, "timestamps", false, "begin each line of output with the time it was printed at")
	fl.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	fl.BoolVar(&queue, "queue", false, "wait while another command runs, instead of failing")
	jsonFlag(cmd, &asJSON)
	return cmd
}
