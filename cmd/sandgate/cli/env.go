package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

// Env is the world as the command tree sees it: the process of a user, or a
// session of the ssh gateway. Nothing in the tree reads the real one.
type Env struct {
	Stdin  io.Reader // nil: there is none
	Stdout io.Writer
	Stderr io.Writer
	// Which of them are terminals.
	StdinTTY, StdoutTTY, StderrTTY bool
	// Raw has the terminal hand on every key as it is pressed, until restore is
	// called; nil where there is none.
	Raw func() (restore func(), err error)

	Getenv func(string) string

	// Client connects to a server: the one at host, or, when that is empty,
	// the one of this machine, which is started first if need be.
	Client func(ctx context.Context, host string) (*api.Client, error)

	// Local is true in the process of a user, and false in a session of the
	// gateway: there the files and programs of this machine are not the
	// user's, and commands that would touch them refuse.
	Local bool
	// StateDir keeps files of the client (known_hosts); Local alone.
	StateDir string
	// LostUser is the ssh user name of a session that may have been meant for a
	// sandbox which does not exist; not Local.
	LostUser string
	// Gateway is the "host:port" at which the user reached the gateway, if
	// that is known; not Local.
	Gateway string

	HTTP *http.Client     // fetches public keys of GitHub users; nil: a default
	Now  func() time.Time // nil: time.Now
}

// app is the command tree's hold on its environment.
type app struct {
	Env
	host string // --host
}

// connect makes the client of this run.
func (a *app) connect(ctx context.Context) (*api.Client, error) {
	host := a.host
	if host == "" && a.Local {
		host = a.Getenv("SANDGATE_HOST")
	}
	return a.Client(ctx, host)
}

// withClient connects, does something, and closes the connection.
func (a *app) withClient(cmd *cobra.Command, do func(context.Context, *api.Client) error) error {
	ctx := cmd.Context()
	return a.withClientContext(ctx, func(c *api.Client) error { return do(ctx, c) })
}

// printJSON writes v, indented. Control characters are escaped, those that
// encoding/json lets through too: the strings may come from a sandbox.
func (a *app) printJSON(v any) error {
	raw, err := marshalIndent(v)
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(raw)
	return err
}

func marshalIndent(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return append(escapeControls(raw), '\n'), nil
}

// escapeControls escapes in JSON the control characters that encoding/json lets
// through.
func escapeControls(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+1)
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] == 0x7f:
			out = append(out, `\u007f`...)
		case raw[i] == 0xc2 && i+1 < len(raw) && raw[i+1] < 0xa0: // U+0080 to U+009F
			out = fmt.Appendf(out, `\u00%02x`, raw[i+1])
			i++
		default:
			out = append(out, raw[i])
		}
	}
	return out
}

// note tells a person something beside the result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "sandgate: "+format+"\n", args...)
}

// hasStdin reports whether standard input is something to read: not a
// terminal, and not /dev/null.
func (a *app) hasStdin() bool {
	if a.Stdin == nil || a.StdinTTY {
		return false
	}
	f, ok := a.Stdin.(*os.File)
	if !ok {
		return true
	}
	is, err := f.Stat()
	if err != nil {
		return false // closed
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(is, null)
}
