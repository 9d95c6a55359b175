package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) deleteCommand() *cobra.Command {
	var confirm, asJSON bool
	cmd := &cobra.Command{
		Use: "delete <sandbox>... [flags]", Aliases: []string{"rm", "del", "remove", "destroy", "terminate"},
		Short: "Delete sandboxes, and everything in them",
		Long: `Delete sandboxes, and everything in them. On a terminal it asks first, unless
--confirm is given. The others are deleted even if one of them cannot be.`,
		Example: `  sandgate delete dev
  sandgate delete sbx_4k2m7qa3bc5d sbx_9z8y7x6w5v4u --confirm`,
		Args: atLeast("the id or name of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.StdinTTY && !confirm {
				if ok, err := a.ask(cmd, "Delete "+strings.Join(args, ", ")+" and everything in it?"); err != nil || !ok {
					return err
				}
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.deleteEach(args, asJSON, func(ref string) error { return c.Delete(cmd.Context(), ref) })
		},
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "do not ask")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// deleteEach deletes what args name, and goes on when one of them cannot be:
// each failure gets a line, the last one gives the exit code.
func (a *app) deleteEach(args []string, asJSON bool, remove func(string) error) error {
	deleted := []string{}
	var failed error
	for _, arg := range args {
		err := remove(arg)
		if err == nil {
			deleted = append(deleted, arg)
			if !asJSON {
				fmt.Fprintf(a.Stdout, "deleted %s\n", clean(arg))
			}
			continue
		}
		if failed != nil {
			report(a.Stderr, failed)
		}
		failed = err
	}
	if asJSON {
		if err := a.printJSON(map[string]any{"deleted": deleted}); err != nil {
			return err
		}
	}
	return failed
}

// ask asks a question on the terminal; anything but yes is no.
func (a *app) ask(cmd *cobra.Command, question string) (bool, error) {
	fmt.Fprintf(a.Stderr, "%s [y/N] ", clean(question))
	answer := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { // ends with the program when nobody answers
		line, err := bufio.NewReader(io.LimitReader(a.Stdin, 1024)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			failed <- fault.Wrap(err, fault.Unavailable, "the terminal cannot be read")
			return
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-cmd.Context().Done():
		fmt.Fprintln(a.Stderr)
		return false, cmd.Context().Err()
	case err := <-failed:
		return false, err
	case line := <-answer:
		return line == "y" || line == "yes", nil
	}
}
