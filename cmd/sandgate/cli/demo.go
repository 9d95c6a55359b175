package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// demoScript is what the demo runs when nobody is at the terminal.
const demoScript = `id; uname -a; python3 --version || true`

type demoFlags struct {
	engine, runtime string
	asJSON          bool
}

func newDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A shell in a fresh sandbox, over real ssh, with nothing set up",
		Long: `Start a gateway on a free loopback port with a state folder of its own, make a
sandbox, and open it with the system's ssh. Everything is removed at the end.

Without a terminal a few commands run in the sandbox instead, and what they
print comes back with the times it took.`,
		Example: "  sandgate demo\n  sandgate demo --runtime base:latest </dev/null",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return demo(cmd, f) },
	}
	cmd.Flags().StringVar(&f.engine, "engine", "gvisor", "what isolates the sandbox: gvisor or docker")
	cmd.Flags().StringVar(&f.runtime, "runtime", "", "runtime of the sandbox (default: base:latest where it is on this machine, host:latest otherwise, which needs no download)")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print what the commands printed and the times as JSON")
	return cmd
}

// demoResult is what the demo prints with --json.
type demoResult struct {
	SandboxID      string `json:"sandboxId"`
	Engine         string `json:"engine"`
	Mode           string `json:"mode"`
	Runtime        string `json:"runtime"`
	CreateMs       int64  `json:"createMs"`
	FirstCommandMs int64  `json:"firstCommandMs"`
	Output         string `json:"output"`
	ExitCode       int    `json:"exitCode"`
}

func demo(cmd *cobra.Command, f demoFlags) (err error) {
	sshPath, err := exec.LookPath("ssh")
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the demo opens the sandbox with the system's ssh, which is not installed (apt-get install openssh-client)")
	}
	interactive := !f.asJSON && term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stdout.Fd())
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()

	dir, err := os.MkdirTemp("", "sandgate-demo-")
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "no temporary folder can be made: %v", rootCause(err))
	}
	defer os.RemoveAll(dir)
	say := func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	logFile, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return stateDir(dir).unusable(err)
	}
	defer logFile.Close()

	srv, err := newServer(ctx, serverConfig{
		state: stateDir(dir), ssh: "127.0.0.1:0", engine: f.engine, runtime: f.runtime,
		log: slog.New(slog.NewTextHandler(logFile, nil)), notice: func(string, ...any) {},
	})
	if err != nil {
		return err
	}
	defer srv.Close()
	defer srv.purge()
	serving := make(chan error, 1)
	runCtx, endServer := context.WithCancel(context.WithoutCancel(ctx))
	go func() { serving <- srv.run(runCtx) }()
	defer func() {
		endServer()
		err = errors.Join(err, <-serving)
	}()

	caps := srv.engine.Capabilities()
	say("gateway   ssh on %s, engine %s (%s)", srv.sshLn.Addr(), srv.driver.Name(), caps.Mode)
	if f.runtime == "" {
		choice, err := srv.images.Pick(ctx, caps.Support[driver.FeatureHostDirs].OK)
		if err != nil {
			return err
		}
		f.runtime = choice.Runtime
		if choice.Reason != "" {
			say("runtime   %s", choice.Reason)
		}
	}
	actor := srv.engine.As(srv.operator)
	began := time.Now()
	made, err := actor.Create(ctx, sandbox.CreateRequest{Runtime: f.runtime, Progress: func(line string) { say("          %s", line) }})
	if err != nil {
		return err
	}
	created := time.Since(began)
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, actor.Delete(end, made.Sandbox.ID))
	}()
	say("sandbox   %s from %s (%s) in %d ms", made.Sandbox.ID, made.Sandbox.Runtime.Name, made.Sandbox.Runtime.Source, created.Milliseconds())

	args, err := srv.visit(ctx, dir, made.Sandbox.ID)
	if err != nil {
		return err
	}
	say("type      ssh %s", strings.Join(args, " "))
	if interactive {
		say("opening it now; `exit` ends the demo and removes everything\n")
		ssh := exec.CommandContext(ctx, sshPath, args...)
		ssh.Stdin, ssh.Stdout, ssh.Stderr = os.Stdin, os.Stdout, os.Stderr
		return visitEnded(ssh.Run())
	}

	var out bytes.Buffer
	first := time.Now()
	run := exec.CommandContext(ctx, sshPath, append([]string{"-n", "-o", "BatchMode=yes"}, append(args, demoScript)...)...)
	run.Stdout = io.MultiWriter(&out, &firstByte{at: &first})
	run.Stderr = run.Stdout
	err = run.Run()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		return fault.Wrap(err, fault.Unavailable, "ssh did not run: %v", rootCause(err))
	}
	res := demoResult{
		SandboxID: made.Sandbox.ID, Engine: srv.driver.Name(), Mode: caps.Mode, Runtime: made.Sandbox.Runtime.Name,
		CreateMs: created.Milliseconds(), FirstCommandMs: first.Sub(began).Milliseconds(), Output: out.String(), ExitCode: run.ProcessState.ExitCode(),
	}
	if f.asJSON {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		if err := enc.Encode(res); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "\n$ ssh %s '%s'\n%s\n", made.Sandbox.ID, demoScript, res.Output)
		fmt.Fprintf(cmd.OutOrStdout(), "created in %d ms, first output %d ms after the request\n", res.CreateMs, res.FirstCommandMs)
	}
	if res.ExitCode != 0 {
		return fault.New(fault.Unavailable, "the command in the sandbox ended with status %d; the server's log:\n%s", res.ExitCode, tail(logFile.Name()))
	}
	return nil
}

// purge takes back what a driver keeps outside of the state folder for its next
// sandbox: the demo has no next one.
func (s *server) purge() {
	p, ok := s.driver.(interface{ Purge(context.Context) error })
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Purge(ctx); err != nil {
		s.cfg.log.Warn("remove what the engine kept", "err", err)
	}
}

// visit makes a key for this visit, registers it, and returns the arguments of
// ssh that lead to the sandbox: a line that works in any other terminal too.
func (s *server) visit(ctx context.Context, dir, sandboxID string) ([]string, error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(priv, "sandgate demo")
	if err != nil {
		return nil, err
	}
	keyFile := filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, stateDir(dir).unusable(err)
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		return nil, err
	}
	_, err = s.engine.As(s.operator).AddKey(ctx, keys.Key{
		Fingerprint: ssh.FingerprintSHA256(sshPub), Type: sshPub.Type(),
		PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPub))), Comment: "demo",
		Principal: s.operator.ID, Role: s.operator.Role, ExpiresAt: time.Now().Add(24 * time.Hour),
	})
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.sshLn.Addr().String())
	if err != nil {
		return nil, err
	}
	var known strings.Builder
	for _, k := range s.identity() {
		fmt.Fprintf(&known, "[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(k.PublicKey()))
	}
	knownHosts := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(knownHosts, []byte(known.String()), 0o600); err != nil {
		return nil, stateDir(dir).unusable(err)
	}
	return []string{"-F", "none", "-i", keyFile, "-o", "IdentitiesOnly=yes", "-o", "UserKnownHostsFile=" + knownHosts, "-p", port, sandboxID + "@" + host}, nil
}

// visitEnded judges how the user's own shell ended: any status of the shell is
// the user's business, only ssh's own failure is ours.
func visitEnded(err error) error {
	var code *exec.ExitError
	if errors.As(err, &code) && code.ExitCode() != 255 {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "ssh could not open the sandbox")
	}
	return nil
}

// firstByte notes when the first byte passes.
type firstByte struct {
	at   *time.Time
	seen bool
}

func (f *firstByte) Write(p []byte) (int, error) {
	if !f.seen && len(p) > 0 {
		f.seen, *f.at = true, time.Now()
	}
	return len(p), nil
}

// tail returns the last lines of a log.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
