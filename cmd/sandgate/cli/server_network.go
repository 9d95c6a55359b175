package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/netd"
)

// network is the server's side of the network daemon. The daemon is started
// when a sandbox first needs it, and outlives the server as long as one does.
type network struct {
	dir string

	mu     sync.Mutex
	client *netd.Client
	up     chan struct{} // closed when there is a client
}

var (
	_ driver.Network = (*network)(nil)
	_ sandbox.Egress = (*network)(nil)
)

// newNetwork returns nil and the reason where this host cannot connect
// sandboxes, or is told not to. Otherwise the reason says what to expect.
func newNetwork(ctx context.Context, cfg serverConfig) (n *network, reason string) {
	if cfg.noNetwork {
		return nil, "the server was started with --network off"
	}
	ok, reason := netd.Probe(ctx)
	if !ok {
		return nil, reason
	}
	return &network{dir: filepath.Join(string(cfg.state), "netd"), up: make(chan struct{})}, reason
}

// connect returns the client of a daemon that runs.
func (n *network) connect(ctx context.Context) (*netd.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		return n.client, nil
	}
	c, err := netd.Ensure(ctx, n.dir, "/proc/self/exe")
	if err != nil {
		return nil, err
	}
	n.client = c
	close(n.up)
	return c, nil
}

// used reports whether sandboxes have been connected by an earlier server.
func (n *network) used() bool {
	found, err := filepath.Glob(filepath.Join(n.dir, "boxes", "*.json"))
	return err == nil && len(found) > 0
}

// settle is called once at the start: it takes up what an earlier server has
// connected and cuts off what belongs to no sandbox any more.
func (n *network) settle(ctx context.Context, known []string) ([]string, error) {
	if !n.used() && len(known) == 0 {
		return nil, nil
	}
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Leftovers(ctx, known, true)
}

// Close ends the daemon when no sandbox needs it any more.
func (n *network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	c := netd.NewClient(n.dir) // one that starts nothing
	left, err := c.List(ctx)
	if err != nil || len(left) > 0 {
		return nil
	}
	return c.Stop(ctx)
}

func (n *network) Resolver() string { return netd.NewClient(n.dir).Resolver() }

func (n *network) Attach(ctx context.Context, id string) (*os.File, error) {
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Attach(ctx, id)
}

func (n *network) Adopt(ctx context.Context, id string, namespace *os.File) error {
	c, err := n.connect(ctx)
	if err != nil {
		return err
	}
	return c.Adopt(ctx, id, namespace)
}

func (n *network) Detach(ctx context.Context, id string) error {
	if !n.used() {
		return nil
	}
	c, err := n.connect(ctx)
	if err != nil {
		return err
	}
	return c.Detach(ctx, id)
}

func (n *network) SetPolicy(ctx context.Context, id string, allow []string) error {
	c, err := n.connect(ctx)
	if err != nil {
		return err
	}
	return c.SetPolicy(ctx, id, allow)
}

func (n *network) Traffic(ctx context.Context, id string) (in, out int64, err error) {
	if !n.used() {
		return 0, 0, fault.New(fault.NotFound, "sandbox %s has no network", id).About("sandbox")
	}
	c, err := n.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	return c.Traffic(ctx, id)
}

// refusalWait is how long one question for refusals waits, refusalRetry how
// long to wait after a failed one.
const (
	refusalWait  = 20 * time.Second
	refusalRetry = 5 * time.Second
)

// watchRefusals turns what the daemon has refused into events of the sandboxes,
// until ctx ends. The place it has come to is kept in a file, so that a restart
// tells nothing twice; a crash may.
func (s *server) watchRefusals(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.network.up:
	}
	place := filepath.Join(s.network.dir, "told")
	after := readPlace(place)
	for ctx.Err() == nil {
		c, err := s.network.connect(ctx)
		if err != nil {
			return err
		}
		found, next, lost, err := c.Refusals(ctx, after, refusalWait)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.log.Warn("read what the network refused", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(refusalRetry):
			}
			continue
		}
		if lost {
			s.cfg.log.Warn("some refusals of the network were dropped before they were read")
		}
		for _, r := range found {
			s.engine.NetworkRefused(ctx, r.Sandbox, sandbox.Refusal{
				Kind: string(r.Kind), Proto: r.Proto, Target: r.Target, Reason: r.Reason, Rule: r.Rule, Count: r.Count, At: r.Time,
			})
		}
		if next != after {
			after = next
			if err := os.WriteFile(place, []byte(strconv.FormatUint(after, 10)), 0o600); err != nil {
				s.cfg.log.Warn("note which refusals were told", "err", err)
			}
		}
	}
	return nil
}

func readPlace(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// settleNetwork is network.settle for the sandboxes of this server.
func (s *server) settleNetwork(ctx context.Context) error {
	if s.network == nil {
		return nil
	}
	live, _, err := s.store.Sandboxes(ctx, sandbox.SandboxFilter{LiveOnly: true})
	if err != nil {
		return err
	}
	var known []string
	for _, sb := range live {
		if sb.Network != nil && sb.Driver == s.driver.Name() {
			known = append(known, sb.ID)
		}
	}
	lines, err := s.network.settle(ctx, known)
	for _, l := range lines {
		s.cfg.log.Info("removed a leftover", "what", l)
	}
	if err != nil {
		return fmt.Errorf("take up the network of sandboxes: %w", err)
	}
	return nil
}
