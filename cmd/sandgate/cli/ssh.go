package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) sshCommand() *cobra.Command {
	var show, asJSON bool
	cmd := &cobra.Command{
		Use: "ssh <sandbox> [flags] [-- command]", Short: "Open a shell in a sandbox, or run a command in it",
		Long: `Open a shell in a sandbox, or run a command in it, with the system's ssh: the
same as typing the line that --show prints. The gateway's host keys are known
already, so there is nothing to confirm. The exit code is that of the command;
255 is ssh's own.`,
		Example: `  sandgate ssh dev
  sandgate ssh dev 'ls -la /workspace'
  sandgate ssh dev --show`,
		Args:        atLeast("the id or name of a sandbox"),
		Annotations: map[string]string{takesCommand: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !sshUser.MatchString(args[0]) {
				return misused(cmd, "%q is not the id or name of a sandbox", args[0])
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return own(err)
			}
			defer c.Close()
			info, err := c.Info(cmd.Context())
			if err != nil {
				return own(err)
			}
			d, err := a.destination(c, info)
			if err != nil {
				return own(err)
			}
			line := append(d.options, "--", args[0]+"@"+d.host)
			line = append(line, args[1:]...)
			if show || asJSON || !a.Local {
				return a.showSSH(line, asJSON)
			}
			_ = c.Close()
			return a.openSSH(cmd.Context(), line)
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the ssh command instead of running it")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// sshUser is what may stand before the @: an id or a name, a session and a user
// of the sandbox.
var sshUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+~-]*$`)

// destination is how ssh reaches the gateway.
type destination struct {
	options []string // of the ssh program
	host    string
}

// destination works out how ssh reaches the gateway of a server, and makes its
// host keys known to ssh.
func (a *app) destination(c *api.Client, info api.Info) (destination, error) {
	g, err := a.gateway(c, info)
	if err != nil {
		return destination{}, err
	}
	d := destination{host: g.host}
	if g.trusted && !g.viaSSH && len(info.HostKeys) > 0 {
		path, err := rememberHostKeys(a.StateDir, net.JoinHostPort(g.host, g.port), info.HostKeys)
		if err != nil {
			return d, err
		}
		d.options = append(d.options, "-o", "UserKnownHostsFile="+path, "-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no")
	}
	if g.port != "" && (g.viaSSH || g.port != "22") {
		d.options = append(d.options, "-p", g.port)
	}
	return d, nil
}

// gatewayAddress is where the gateway of a server is.
type gatewayAddress struct {
	host, port string
	// viaSSH: the API came through the very gateway, and the same way leads in,
	// with the names and keys that ssh knows for it. The port may be empty.
	viaSSH bool
	// trusted: the server's word for its host keys is worth more than that of a
	// first connection.
	trusted bool
}

// gateway works out where the gateway of a server is. Its host keys can be
// taken from the server over the unix socket, HTTPS and ssh.
func (a *app) gateway(c *api.Client, info api.Info) (gatewayAddress, error) {
	reached, err := url.Parse(c.Host())
	if err != nil {
		reached = &url.URL{}
	}
	if reached.Scheme == "ssh" {
		return gatewayAddress{host: reached.Hostname(), port: reached.Port(), viaSSH: true, trusted: true}, nil
	}
	if info.SSH == "" {
		return gatewayAddress{}, fault.New(fault.Unavailable, "this server has no ssh gateway; start it with --ssh ADDRESS")
	}
	host, port, err := net.SplitHostPort(info.SSH)
	if err != nil {
		return gatewayAddress{}, fault.Wrap(err, fault.Unavailable, "the server names %q as its ssh address, which is none", info.SSH)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		switch {
		case !a.Local:
			host = "gateway" // as the user calls it; the server cannot know
		case reached.Hostname() != "" && reached.Scheme != "unix":
			host = reached.Hostname()
		default:
			host = "127.0.0.1"
		}
	}
	if !a.Local && a.Gateway != "" {
		if h, p, err := net.SplitHostPort(a.Gateway); err == nil {
			host, port = h, p
		}
	}
	return gatewayAddress{host: host, port: port, trusted: a.Local && reached.Scheme != "http"}, nil
}

// showSSH prints the command line.
func (a *app) showSSH(args []string, asJSON bool) error {
	argv := append([]string{"ssh"}, args...)
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		quoted[i] = shellQuote(arg)
	}
	line := strings.Join(quoted, " ")
	if asJSON {
		return a.printJSON(map[string]any{"command": line, "argv": argv})
	}
	_, err := fmt.Fprintln(a.Stdout, clean(line))
	return err
}

// openSSH runs ssh in place of this program.
func (a *app) openSSH(ctx context.Context, args []string) error {
	path, err := exec.LookPath("ssh")
	if err != nil {
		return own(fault.Wrap(err, fault.Unavailable, "there is no ssh program in PATH; install one (apt-get install openssh-client)"))
	}
	ssh := exec.CommandContext(ctx, path, args...)
	ssh.Stdin, ssh.Stdout, ssh.Stderr = a.Stdin, a.Stdout, a.Stderr
	ssh.Cancel = func() error { return ssh.Process.Signal(syscall.SIGTERM) }
	ssh.WaitDelay = 2 * time.Second
	err = ssh.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return exitCodeError{code: 128 + int(status.Signal())}
		}
		return exitCodeError{code: exit.ExitCode()}
	}
	if err != nil {
		return own(fault.Wrap(err, fault.Unavailable, "ssh did not run: %v", err))
	}
	return nil
}

// shellWord is what a shell takes as it is.
var shellWord = regexp.MustCompile(`^[A-Za-z0-9@%_+=:,./\[\]-]+$`)

func shellQuote(s string) string {
	if shellWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
