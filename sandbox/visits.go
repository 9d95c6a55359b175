package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Visit is what a connection did, or does, in a sandbox.
type Visit struct {
	Principal string
	From      string // address of the client
	Key       string // that let it in
	Began     time.Time
	// The rest is of a visit that is over.
	Ended              time.Time
	Connections        int // more than one: short visits of the same principal, told as one
	Sessions, Forwards int
	In, Out            int64 // bytes from and to the client
}

// Visited records visits as events of the sandbox: ssh:connect for one that
// goes on, ssh:disconnect for one that is over. They count as no activity. Those
// of a sandbox that is no more are dropped.
func (e *Engine) Visited(ctx context.Context, sandboxID string, visits ...Visit) {
	events := make([]Event, 0, len(visits))
	for _, v := range visits {
		data := map[string]any{"from": v.From, "key": v.Key}
		ev := e.event(sandboxID, EventSSHConnect, v.Principal, data)
		ev.At = v.Began
		if !v.Ended.IsZero() {
			ev.Type, ev.At = EventSSHDisconnect, v.Ended
			data["sessions"], data["forwards"] = v.Sessions, v.Forwards
			data["in"], data["out"] = v.In, v.Out
			data["durationMs"] = v.Ended.Sub(v.Began).Milliseconds()
			if v.Connections > 1 {
				data["connections"] = v.Connections
			}
		}
		events = append(events, ev)
	}
	_, err := e.cfg.Store.UpdateSandbox(ctx, sandboxID, func(s *Sandbox) ([]Event, error) {
		if !s.Status.Live() {
			return nil, nil
		}
		return events, nil
	})
	if err != nil && !fault.Is(err, fault.NotFound) && ctx.Err() == nil {
		e.cfg.Log.Warn("record who has used a sandbox", "sandbox", sandboxID, "err", err)
	}
}
