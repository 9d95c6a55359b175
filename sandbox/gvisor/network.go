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
	case !d.root:
		// The namespace belongs to who provides it, and only root may join it.
		return driver.Support{Reason: needsRoot}
	case d.network == nil:
		return driver.Support{Reason: "nothing provides a network"}
	}
	return driver.Support{OK: true, Reason: "addresses and routes of the provider's namespace, in gVisor's own network stack"}
}

// attach readies the network namespace of a sandbox, if it has a network.
// gVisor takes the addresses and routes it finds there over and away from the
// device, so this is done before every start, that from a memory image
// included.
func (d *Driver) attach(ctx context.Context, r *record) (*os.File, error) {
	if !r.Spec.Network {
		return nil, nil
	}
	if d.network == nil {
		return nil, fault.New(fault.Unavailable, "sandbox %s has a network, and nothing provides one", r.Spec.ID).About("sandbox")
	}
	f, err := d.network.Attach(ctx, r.Spec.ID)
	if err == nil && f == nil {
		err = fmt.Errorf("the network provider gave no namespace")
	}
	return f, err
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
