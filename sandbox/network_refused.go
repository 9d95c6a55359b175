package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Refusal is something a sandbox wanted of the network and did not get.
type Refusal struct {
	Kind   string // "refused", "failed" (allowed, but not to be reached) or "cut" (by new rules)
	Proto  string // "tcp", "udp", "dns", "icmp", …
	Target string // "name:port" where the name is known, or an address
	Reason string // one clause for a person
	Rule   string // would have allowed it; empty where none could
	Count  int    // how often
	At     time.Time
}

// NetworkRefused records a refusal as an event of the sandbox. One of a sandbox
// that is no more is dropped.
func (e *Engine) NetworkRefused(ctx context.Context, sandboxID string, r Refusal) {
	data := map[string]any{"kind": r.Kind, "proto": r.Proto, "target": r.Target, "reason": r.Reason, "count": r.Count}
	if r.Rule != "" {
		data["rule"] = r.Rule
	}
	ev := e.event(sandboxID, EventNetworkRefused, "system", data)
	if !r.At.IsZero() {
		ev.At = r.At
	}
	_, err := e.update(ctx, sandboxID, func(s *Sandbox) ([]Event, error) {
		if !s.Status.Live() {
			return nil, nil
		}
		return []Event{ev}, nil
	})
	if err != nil && !fault.Is(err, fault.NotFound) && ctx.Err() == nil {
		e.cfg.Log.Warn("record a refusal of the network", "sandbox", sandboxID, "err", err)
	}
}
