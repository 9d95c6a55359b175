// Package docker is the driver that makes sandboxes in a Docker engine.
//
// A sandbox is one container, named after the state folder and the sandbox:
// the guest is its PID 1, its network namespace has no interface but loopback,
// and it holds no more privileges than installing packages and switching users
// inside it takes (privileges.go). Everything the driver has to know about a
// sandbox is in the labels of its container; beside that there is one file per
// sandbox in the state folder (record.go), so that a container that somebody
// else removed is noticed, and so is a creation that a crash cut short.
//
// Layers become an image, imported once per digest (image.go, merge.go). Host
// directories become volumes that the engine mounts as overlays (hostdirs.go);
// for them the engine has to run on this machine.
//
// A memory limit ends the whole sandbox. Linux kills one process of a
// container that exceeds its limit, and the engine tells; the driver then ends
// the rest (oom.go). What exceeds its limit while no server runs is ended when
// the next one starts.
package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Config is what the driver depends on.
type Config struct {
	// Host is the address of the engine ("unix:///run/docker.sock",
	// "tcp://10.0.0.7:2376"). Empty means what the environment says
	// (DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH), and the default
	// socket when it says nothing.
	Host string
	// StateDir is the state folder; it has to exist. Sandboxes belong to it:
	// a driver on another folder does not see them.
	StateDir string
	// Network connects sandboxes that ask for it. Nil means that none can.
	Network driver.Network
	// Log receives what nobody waits for. Nil discards it.
	Log *slog.Logger
}

// Driver implements driver.Driver on a Docker engine.
type Driver struct {
	cli     *client.Client
	log     *slog.Logger
	network driver.Network // may be nil
	dir     string         // one file per sandbox
	own     string         // one directory per sandbox that was restored
	state   string         // value of the label of everything this state folder owns

	locks  keyed // operations on one sandbox
	images keyed // imports of one digest
	guests keyed // copies of one program
	layers keyed // work on one saved layer
	dials  gate  // between relays being started and pauses

	mu      sync.Mutex
	volumes map[string]string               // of guest programs, by path; whole
	halfway map[string]bool                 // being made or removed: to lack parts is no damage
	info    *system.Info                    // what the engine last said of itself
	streams map[string]map[*stream]struct{} // open ones, by sandbox

	stop context.CancelFunc
	work sync.WaitGroup
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Stats   = (*Driver)(nil)
	_ driver.Cleaner = (*Driver)(nil)
	_ driver.Saver   = (*Driver)(nil)
	_ driver.Resizer = (*Driver)(nil)
)

// New returns a driver. It does not need the engine to answer: Capabilities
// says whether it does.
func New(cfg Config) (*Driver, error) {
	opts := []client.Opt{client.FromEnv}
	if cfg.Host != "" {
		opts = append(opts, client.WithHost(cfg.Host))
	}
	cli, err := client.New(opts...)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the address of the docker engine %q is not understood; it looks like unix:///var/run/docker.sock or tcp://host:2376", cfg.Host)
	}
	if u, err := url.Parse(cli.DaemonHost()); err != nil || u.Scheme != "unix" && u.Scheme != "tcp" && u.Scheme != "http" && u.Scheme != "https" {
		return nil, fault.New(fault.Invalid, "the docker engine is reached over unix:// or tcp://, not at %q", cli.DaemonHost())
	}
	stateDir, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("find the state folder: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(stateDir); err == nil {
		stateDir = resolved
	}
	d := &Driver{
		cli:     cli,
		log:     cfg.Log,
		network: cfg.Network,
		dir:     filepath.Join(stateDir, "docker"),
		own:     filepath.Join(stateDir, "docker-restored"),
		state:   stateLabel(stateDir),
		volumes: make(map[string]string),
		halfway: make(map[string]bool),
		streams: make(map[string]map[*stream]struct{}),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range []string{d.dir, d.own} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fault.Wrap(err, fault.Internal, "the state folder %s cannot be written", stateDir)
		}
	}
	d.releaseAll()
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.work.Go(func() { d.watchOOM(ctx) })
	return d, nil
}

// stateLabel names a state folder. The machine is part of it, because several
// can share one engine, each with a folder of the same name.
func stateLabel(dir string) string {
	machine, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		name, _ := os.Hostname() // an empty name is a name too
		machine = []byte(name)
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(machine)) + "\x00" + dir))
	return hex.EncodeToString(sum[:6])
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return "docker" }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.stop()
	d.work.Wait()
	return d.cli.Close()
}

// engineError turns what the client returned into a fault. It knows what can
// happen in any call; callers look first for what their call promises.
func (d *Driver) engineError(ctx context.Context, err error, doing string) error {
	var netErr net.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.From(fmt.Errorf("%s: %w", doing, context.Cause(ctx)))
	case client.IsErrConnectionFailed(err), errors.As(err, &netErr), isConnectionLost(err):
		return fault.Wrap(err, fault.Unavailable, "docker engine does not answer at %s; start it or use --engine gvisor", d.cli.DaemonHost())
	case isDiskFull(err):
		return fault.Wrap(err, fault.Exhausted, "the disk of the docker engine is full")
	}
	return fault.Wrap(fmt.Errorf("%s: %w", doing, err), fault.Internal, "the docker engine could not %s", doing)
}
