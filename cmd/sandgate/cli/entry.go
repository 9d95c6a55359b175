package cli

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/charmbracelet/x/term"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sshgw"
)

// mainCommand runs the command line of this process.
func mainCommand() int {
	env := Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdinTTY: term.IsTerminal(os.Stdin.Fd()), StdoutTTY: term.IsTerminal(os.Stdout.Fd()), StderrTTY: term.IsTerminal(os.Stderr.Fd()),
		Getenv: os.Getenv, Local: true, Client: localClient,
	}
	if env.StdinTTY {
		env.Raw = rawStdin
	}
	if d, err := chooseState("", os.Getenv); err == nil {
		env.StateDir = filepath.Join(string(d), "client")
	}
	return run(context.Background(), env, os.Args[1:],
		newServeCommand(), newStopCommand(), newDemoCommand(), newDoctorCommand(), newNetdCommand(), newHostKeyCommand(env))
}

// rawStdin makes standard input raw.
func rawStdin() (restore func(), err error) {
	before, err := term.MakeRaw(os.Stdin.Fd())
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(os.Stdin.Fd(), before) }, nil
}

// localClient connects to the server at host; without one to this machine's
// own, which is started in the background when none runs.
func localClient(ctx context.Context, host string) (*api.Client, error) {
	if host == "" {
		d, err := chooseState("", os.Getenv)
		if err != nil {
			return nil, err
		}
		if err := ensureServer(ctx, d, os.Stderr); err != nil {
			return nil, err
		}
		host = "unix://" + d.socket()
	}
	return api.Dial(host, api.DialConfig{APIKey: os.Getenv("SANDGATE_API_KEY")})
}

// remoteCommand runs a command line that came over ssh, as the principal of
// the key. It sees nothing of this machine: no files, no environment.
func remoteCommand(ctx context.Context, cio sshgw.CommandIO, handler http.Handler, gateway string, args []string) int {
	vars := map[string]string{}
	for _, kv := range cio.Env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	if args == nil {
		args = []string{} // cobra takes nil for "the arguments of this process"
	}
	tty := cio.TTY != nil
	env := Env{
		Stdin: cio.Stdin, Stdout: cio.Stdout, Stderr: cio.Stderr,
		StdinTTY: tty, StdoutTTY: tty, StderrTTY: tty,
		Getenv:  func(k string) string { return vars[k] },
		Gateway: cmp.Or(cio.Reached, gateway),
		Client: func(context.Context, string) (*api.Client, error) {
			return api.NewClient(api.InProcess(handler, cio.Principal)), nil
		},
	}
	if tty {
		// The program at the other end is raw already, and takes its terminal
		// back when this command ends.
		env.Raw = func() (func(), error) {
			cio.TTY.SetRaw()
			return func() {}, nil
		}
	}
	if cio.Fallback {
		env.LostUser = cio.User
		if err := env.refuseLost(args); err != nil {
			return report(env.Stderr, err)
		}
	}
	return run(ctx, env, args)
}
