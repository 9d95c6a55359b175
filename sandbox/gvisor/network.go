package gvisor

import (
	"context"
	"fmt"
	"os"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// probeNetwork says whether sandboxes can be connected.
func (d *Driver) probeNetwork() driver.Support {
	if d.network == nil {
		return driver.Support{Reason: "no network provider runs"}
	}
	return driver.Support{OK: true}
}

// attach readies the network namespace of a sandbox. gVisor takes the addresses
// and routes it finds there over and away from the device, so this is done
// before every start, that from a memory image included.
func (d *Driver) attach(ctx context.Context, id string) (*os.File, error) {
	if d.network == nil {
		return nil, fault.New(fault.Unavailable, "sandbox %s has a network, and no network provider runs", id).About("sandbox")
	}
	f, err := d.network.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("the network provider gave no namespace")
	}
	return f, nil
}
