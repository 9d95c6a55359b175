package gvisor

import (
	"context"
	"fmt"
	"os"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// probeNetwork says whether sandboxes can be connected.
func (d *Driver) probeNetwork(h host) driver.Support {
	switch {
	case !h.usable.OK:
		return h.usable
	case d.network == nil:
		return driver.Support{Reason: "nothing provides a network"}
	}
	return driver.Support{OK: true, Reason: "in gVisor's own network stack"}
}

// attach readies the network namespace of a sandbox, if it has a network.
// gVisor takes the addresses and routes it finds there over and away from the
// device, so this is done before every start, that from a memory image
// included. As a plain user it returns none: who may not join a namespace of
// the provider has that of the launcher connected, by adopt.
func (d *Driver) attach(ctx context.Context, r *record) (*os.File, error) {
	if !r.Spec.Network {
		return nil, nil
	}
	if d.network == nil {
		return nil, fault.New(fault.Unavailable, "sandbox %s has a network, and nothing provides one", r.Spec.ID).About("sandbox")
	}
	if !d.root {
		return nil, nil
	}
	f, err := d.network.Attach(ctx, r.Spec.ID)
	if err == nil && f == nil {
		err = fmt.Errorf("the network provider gave no namespace")
	}
	return f, err
}

// adopt has the namespace of a launcher connected, which is new with every
// start and has nothing in it until then. The launcher waits meanwhile, so the
// number is that of no other process.
func (d *Driver) adopt(ctx context.Context, r *record, launcher int) error {
	if !r.Spec.Network || d.root {
		return nil
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", launcher))
	if err != nil {
		return fmt.Errorf("open the network namespace of the launcher: %w", err)
	}
	defer namespace.Close()
	return d.network.Adopt(ctx, r.Spec.ID, namespace)
}

// namespacePath names the namespace of a connected sandbox to runsc.
func (d *Driver) namespacePath() string {
	if d.root {
		return networkPath
	}
	return launcherNetwork
}

// detach takes a sandbox off the network. What is left of a sandbox that is
// broken does not say whether it was on it.
func (d *Driver) detach(ctx context.Context, b box) error {
	if r, err := b.readRecord(); d.network == nil || err == nil && !r.Spec.Network {
		return nil
	}
	return d.network.Detach(ctx, b.id())
}

// resolvConf is the sandbox's /etc/resolv.conf.
func (d *Driver) resolvConf(spec driver.Spec) string {
	if !spec.Network {
		return "# This sandbox has no network.\n"
	}
	return "nameserver " + d.network.Resolver() + "\n"
}
