package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/egress"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Egress decides where sandboxes with a network may go and counts what they
// send: package netd, or a stand-in of a test. Methods are safe for concurrent
// use and may be repeated.
type Egress interface {
	// SetPolicy replaces the rules of a sandbox, live connections included. It
	// may be called before the sandbox is connected, and has to be before it
	// starts. allow is as in Network.Allow.
	SetPolicy(ctx context.Context, sandboxID string, allow []string) error
	// Traffic is how many bytes the sandbox has received and sent since some
	// moment of the past, not before its creation.
	Traffic(ctx context.Context, sandboxID string) (in, out int64, err error)
}

// checkNetwork checks what a request wants of the network.
func (e *Engine) checkNetwork(r *CreateRequest, who keys.Principal) error {
	if r.Port != 0 && (r.Port < 1024 || r.Port > 65535) {
		return fault.InvalidField("port", "%d is not a port that can be exposed; use 1024 to 65535", r.Port)
	}
	if !r.Network {
		if len(r.Allow) > 0 {
			return fault.InvalidField("allow", "means nothing without network; ask for network too")
		}
		return nil
	}
	if support := e.caps.Support[driver.FeatureNetwork]; !support.OK || e.cfg.Egress == nil {
		err := fault.New(fault.Unsupported, "the %s engine gives sandboxes no network on this server; create it without network", e.caps.Driver).About("sandbox")
		if support.Reason != "" && !support.OK {
			err.Message = "this server gives sandboxes no network (" + support.Reason + "); create it without network"
		}
		return err
	}
	return checkAllow(r.Allow, who)
}

// checkAllow checks rules. Those for private networks are for an admin to give.
func checkAllow(allow []string, who keys.Principal) error {
	_, err := egress.Parse(allow, who.IsAdmin())
	return err
}

// network is what a request asks for, nil for none.
func (r *CreateRequest) network() *Network {
	if !r.Network {
		return nil
	}
	return &Network{Allow: r.Allow}
}

// allowNetwork sets the rules of a sandbox that has a network. It is called
// before every start: whoever enforces them need not have kept them.
func (e *Engine) allowNetwork(ctx context.Context, s *Sandbox) error {
	if s.Network == nil {
		return nil
	}
	if e.cfg.Egress == nil {
		return fault.New(fault.Unavailable, "sandbox %s has a network and this server gives none; start the server with network", s.ID).About("sandbox")
	}
	return e.cfg.Egress.SetPolicy(ctx, s.ID, s.Network.Allow)
}
