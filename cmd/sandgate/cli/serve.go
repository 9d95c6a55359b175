package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// defaultSSH is where the gateway listens unless told otherwise: this machine
// only. Opening it to others is a decision somebody makes.
const defaultSSH = "127.0.0.1:2222"

// serveFlags are the flags of `serve`, shared with what starts a server in the
// background.
type serveFlags struct {
	state, ssh, http, engine, runtime, network string
	warm                                       int
	quota, orgQuota                            []string
	trust                                      trustConfig
	sshCompat, noForwarding                    bool
	sshLimits                                  []string
	auditLog                                   string
	auditCommands                              bool
	sessions                                   sessionFlags
	verbose                                    bool
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: the ssh gateway, the API and the engine",
		Long: `Run the server until it is interrupted or ` + "`sandgate stop`" + ` ends it.

Sandboxes, and everything that runs in them, go on when the server ends, and
are found again by the next one on the same state folder.`,
		Example: `  sandgate serve
  sandgate serve --ssh :2222                 # reachable from other machines
  sandgate serve --state ./state --engine docker`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, f)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *serveFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.state, "state", "", "state folder (default $SANDGATE_STATE, or /var/lib/sandgate for root, ~/.local/state/sandgate otherwise)")
	fl.StringVar(&f.ssh, "ssh", defaultSSH, "address of the ssh gateway; \"off\" for none, \"auto\" for the default or, where that is taken, a free port")
	fl.BoolVar(&f.noForwarding, "no-forwarding", false, "forward no ports, sockets and ssh agents over ssh")
	fl.BoolVar(&f.sshCompat, "ssh-compat", false, "offer old ssh clients, such as libssh2 before 1.11, hmac-sha2-256 and -512 as well")
	fl.StringSliceVar(&f.sshLimits, "ssh-limit", nil, "limits of the gateway, NAME=VALUE, such as sessions=64,drain=30s; docs/ssh.md lists them")
	fl.StringVar(&f.auditLog, "audit-log", "", "file that tells who did what; \"off\" for none (default audit.log in the state folder)")
	fl.BoolVar(&f.auditCommands, "audit-commands", false, "keep the text of commands in the audit log")
	fl.StringVar(&f.http, "http", "", "address of the HTTP API for holders of an API key (default: none, only the unix socket)")
	fl.StringVar(&f.engine, "engine", "gvisor", "what isolates sandboxes: gvisor or docker")
	fl.StringVar(&f.runtime, "default-runtime", "", "runtime of sandboxes that name none (default base:latest)")
	fl.IntVar(&f.warm, "warm", 0, "how many sandboxes of the default runtime to keep ready, at about 20 MiB each")
	fl.StringSliceVar(&f.quota, "member-quota", nil, "what one member may have at a time: sandboxes=20,memory=16Gi,cpu=8,disk=50Gi,saved=20Gi")
	fl.StringSliceVar(&f.orgQuota, "org-quota", nil, "what one org may have at a time, whoever makes it, as --member-quota; see: sandgate project --help")
	fl.StringVar(&f.trust.authorities, "trusted-user-ca", "", "file of certificate authorities whose user certificates open the door; docs/keys.md says which options it takes")
	fl.StringVar(&f.trust.revoked, "revoked-keys", "", "file of keys and certificates that open nothing: a list, or a KRL of ssh-keygen -k")
	fl.StringVar(&f.network, "network", "auto", "whether sandboxes may be given a network: auto (where this host can) or off")
	f.sessions.register(fl)
	fl.BoolVar(&f.verbose, "verbose", false, "log every request")
}

// config turns the flags into what a server is made from.
func (f *serveFlags) config(stderr io.Writer) (serverConfig, error) {
	state, err := chooseState(f.state, os.Getenv)
	if err != nil {
		return serverConfig{}, err
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	if f.network != "auto" && f.network != "off" {
		return serverConfig{}, fault.InvalidField("--network", "%q is neither auto nor off", f.network)
	}
	if f.warm < 0 || f.warm > 1000 {
		return serverConfig{}, fault.InvalidField("--warm", "must be 0 to 1000")
	}
	quota, err := parseQuota("--member-quota", f.quota)
	if err != nil {
		return serverConfig{}, err
	}
	orgQuota, err := parseQuota("--org-quota", f.orgQuota)
	if err != nil {
		return serverConfig{}, err
	}
	sessions, err := f.sessions.config()
	if err != nil {
		return serverConfig{}, err
	}
	limits, err := parseSSHLimits(f.sshLimits)
	if err != nil {
		return serverConfig{}, err
	}
	cfg := serverConfig{
		orgQuota: orgQuota, trust: f.trust,
		quota: quota, sessions: sessions, limits: limits, auditLog: f.auditLog, auditCommands: f.auditCommands,
		warm: f.warm, noNetwork: f.network == "off",
		state: state, ssh: f.ssh, sshCompat: f.sshCompat, noForwarding: f.noForwarding, http: f.http, engine: f.engine, runtime: f.runtime,
		log:    slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
		notice: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
	}
	if cfg.ssh == "off" {
		cfg.ssh = ""
	}
	return cfg, nil
}

// parseQuota reads what the flag of a quota says.
func parseQuota(flag string, items []string) (q sandbox.Quota, err error) {
	for _, item := range items {
		name, value, _ := strings.Cut(item, "=")
		switch name {
		case "sandboxes":
			q.Sandboxes, err = strconv.Atoi(value)
			if err == nil && q.Sandboxes < 1 {
				err = errors.New("must be at least 1")
			}
		case "memory":
			q.MemoryBytes, err = sandbox.ParseBytes(value)
		case "cpu":
			q.CPUMillis, err = sandbox.ParseCPU(value)
		case "disk":
			q.DiskBytes, err = sandbox.ParseBytes(value)
		case "saved":
			q.SavedBytes, err = sandbox.ParseBytes(value)
		default:
			err = errors.New("use sandboxes, memory, cpu, disk and saved")
		}
		if err != nil {
			return q, fault.InvalidField(flag, "%q: %v", item, err)
		}
	}
	return q, nil
}

func serve(cmd *cobra.Command, f serveFlags) error {
	// The signals are this command's own: the first one to end drains, the
	// second one ends at once, and SIGHUP reloads.
	hup, ignore := hangups()
	defer ignore()
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer stop()
	defer endOnSignals(stop)()
	ready := takeReady()
	cfg, err := f.config(cmd.ErrOrStderr())
	if err != nil {
		ready.report("error " + fault.From(err).Error())
		return err
	}
	if ready != nil {
		toLog := cfg.notice
		cfg.notice = func(format string, args ...any) {
			toLog(format, args...)
			ready.note(fmt.Sprintf(format, args...))
		}
	}
	s, err := newServer(ctx, cfg)
	if err != nil {
		// The person reads the line below; the cause is for the log, which a
		// terminal is not.
		if c := fault.From(err).Cause; c != nil && (ready != nil || f.verbose) {
			cfg.log.Error("start server", "err", err, "cause", c)
		}
		ready.report("error " + fault.From(err).Error())
		return err
	}
	defer s.Close()
	if ready == nil {
		s.greet()
	}
	if s.sshLn != nil {
		ready.report("ready ssh on " + s.sshLn.Addr().String())
	} else {
		ready.report("ready without ssh")
	}
	go s.reloadOnHangup(ctx, hup, stop)
	return s.run(ctx)
}

// endOnSignals calls end at the first signal to end, and ends this process the
// hard way at the second one. done ends that.
func endOnSignals(end func()) (done func()) {
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-over:
				return
			case s := <-signals:
				end()
				if number, ok := s.(unix.Signal); ok && n > 1 {
					signal.Reset(s)
					_ = unix.Kill(os.Getpid(), number)
				}
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(over)
	}
}

// greet says where the server is and how to know it.
func (s *server) greet() {
	caps := s.engine.Capabilities()
	s.cfg.notice("sandgate %s, engine %s (%s), state in %s", version, s.driver.Name(), caps.Mode, s.cfg.state)
	s.cfg.notice("socket %s", s.cfg.state.socket())
	if s.httpLn != nil {
		s.cfg.notice("http   %s", s.httpLn.Addr())
	}
	if s.sshLn == nil {
		return
	}
	s.cfg.notice("ssh    %s", s.sshLn.Addr())
	for _, k := range s.identity() {
		s.cfg.notice("host key %s (%s)", ssh.FingerprintSHA256(k.PublicKey()), strings.TrimPrefix(k.PublicKey().Type(), "ssh-"))
	}
}
