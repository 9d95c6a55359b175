package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func newStopCommand() *cobra.Command {
	var state string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the server; sandboxes go on",
		Long: `End the server of a state folder. Sandboxes and everything that runs in them
go on; the next server finds them again. To end sandboxes use ` + "`delete`" + `.`,
		Example: "  sandgate stop",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := chooseState(state, os.Getenv)
			if err != nil {
				return err
			}
			was, err := stopServer(cmd.Context(), d)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				fmt.Fprintf(cmd.OutOrStdout(), "{\"stopped\":%t}\n", was)
			case was:
				fmt.Fprintln(cmd.OutOrStdout(), "the server has ended; sandboxes go on")
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "no server runs on %s\n", d)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "state folder of the server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// stopServer asks the server to end and waits until it has let go of its
// folder. It reports whether there was one.
func stopServer(ctx context.Context, d stateDir) (bool, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket())
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandgate/v1/stop", nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return false, nil
	case err != nil:
		return false, fault.Wrap(err, fault.Unavailable, "the server on %s cannot be asked to stop: %v", d, rootCause(err))
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return false, fault.New(fault.Denied, "the server on %s refused to stop (%s)", d, resp.Status)
	}
	return true, waitUnlocked(ctx, d, time.Minute)
}

// waitUnlocked waits until no process holds the lock of the folder.
func waitUnlocked(ctx context.Context, d stateDir, limit time.Duration) error {
	f, err := os.OpenFile(d.lockFile(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return d.unusable(err)
	}
	done := make(chan error, 1)
	go func() {
		// Blocks in the kernel until the server has ended; closing the file
		// does not wake it, so the goroutine may outlive a timeout: the
		// process ends soon after.
		done <- unix.Flock(int(f.Fd()), unix.LOCK_EX)
		f.Close()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return fault.New(fault.Timeout, "the server is still ending after %s; its log is %s", limit, d.serverLog())
	}
}
