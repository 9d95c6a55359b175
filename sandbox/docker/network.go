package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A container never has a network of the engine. The one that it asks for is
// made by driver.Network in the namespace of its PID 1, from outside: the
// container gets no privilege for it. The namespace is new with every start.
// Until it is connected nothing but the guest runs in it, and what fails in
// between leaves the sandbox without a network, never with another one.

// networkSupport says whether sandboxes can be connected.
func (d *Driver) networkSupport(local bool, remoteReason string) driver.Support {
	switch {
	case d.network == nil:
		return driver.Support{Reason: "the server has no network service to connect sandboxes with"}
	case !local:
		return driver.Support{Reason: remoteReason + ", so it cannot connect a container"}
	case os.Geteuid() != 0:
		return driver.Support{Reason: "connecting a container takes a server that runs as root"}
	}
	return driver.Support{OK: true, Reason: "the engine's own networks are not used"}
}

// nameServers are the name servers of a container with a network.
func (d *Driver) nameServers() ([]netip.Addr, error) {
	a, err := netip.ParseAddr(d.network.Resolver())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the network service names no name server")
	}
	return []netip.Addr{a}, nil
}

// connect connects a running sandbox, if it is to be.
func (d *Driver) connect(ctx context.Context, id string) error {
	if r, _ := d.readRecord(id); !r.Network {
		return nil
	}
	o, err := d.inspect(ctx, id)
	if err != nil || o.state() != driver.Running {
		return err
	}
	if d.network == nil {
		return fault.New(fault.Unavailable, "sandbox %s has a network, and the server has no network service to connect it with", id).About("sandbox")
	}
	namespace, err := d.namespace(ctx, id, o)
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := d.network.Adopt(ctx, id, namespace); err != nil {
		return fault.From(fmt.Errorf("connect the sandbox: %w", err))
	}
	return nil
}

// namespace opens the network namespace of a container's first process. The
// number of a process means something to the kernel that gave it, and only as
// long as the process lives; so what was opened is looked at twice.
func (d *Driver) namespace(ctx context.Context, id string, o observed) (*os.File, error) {
	wrong := func(err error) error {
		return fault.Wrap(err, fault.Unavailable, "the network namespace of sandbox %s is not found; is the server in a container of its own?", id).About("sandbox")
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", o.State.Pid))
	if err != nil {
		return nil, wrong(err)
	}
	again, err := d.inspect(ctx, id)
	if err == nil && (again.state() != driver.Running || again.State.Pid != o.State.Pid || again.State.StartedAt != o.State.StartedAt) {
		err = stateFault(id, nil)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", o.State.Pid))
	if err == nil && !strings.Contains(string(groups), o.ID) {
		err = errors.New("the process is in no cgroup of the container")
	}
	if err == nil {
		err = notOurs(f)
	}
	if err != nil {
		f.Close()
		return nil, wrong(err)
	}
	return f, nil
}

// notOurs refuses the namespace of this process.
func notOurs(f *os.File) error {
	theirs, err := f.Stat()
	if err != nil {
		return err
	}
	ours, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if os.SameFile(theirs, ours) {
		return errors.New("the container's network namespace is that of the server")
	}
	return nil
}

// detach cuts a sandbox off that had a network, or was about to.
func (d *Driver) detach(ctx context.Context, id string) error {
	if r, _ := d.readRecord(id); !r.Network || d.network == nil {
		return nil
	}
	if err := d.network.Detach(ctx, id); err != nil {
		return fault.From(fmt.Errorf("disconnect the sandbox: %w", err))
	}
	return nil
}

// containerd reports whether the engine keeps images in containerd's store.
func containerd(info *system.Info) bool {
	for _, kv := range info.DriverStatus {
		if kv[0] == "driver-type" && strings.HasPrefix(kv[1], "io.containerd.snapshotter") {
			return true
		}
	}
	return false
}
