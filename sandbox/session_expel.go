package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// expel detaches the clients of sessions that may not use the sandbox any more:
// somebody was taken out of its project. What they have started goes on.
func (e *Engine) expel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cleanupTime())
	defer cancel()
	for _, ls := range e.sessions.of("") {
		ls.mu.Lock()
		there := append([]*viewer(nil), ls.viewers...)
		ls.mu.Unlock()
		if len(there) == 0 {
			continue
		}
		s, err := e.cfg.Store.Sandbox(ctx, ls.sandboxID)
		for _, v := range there {
			may := false
			if err == nil {
				may, err = e.As(v.who).may(ctx, &s)
			}
			if may {
				continue
			}
			// Who cannot be asked about is sent away too, and may come back.
			e.cfg.Log.Info("client of a session sent away", "session", ls.id, "sandbox", ls.sandboxID, "user", v.principal, "err", err)
			v.detach(fault.Wrap(ErrDetached, fault.Denied, "detached: you may not use this sandbox any more").About("session"), "no longer allowed")
		}
	}
}
