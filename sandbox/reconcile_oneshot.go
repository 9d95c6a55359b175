package sandbox

import "context"

// reconcileOneshots removes the sandboxes of runs that are over, or have never
// begun, and that the server had no time left to remove.
func (e *Engine) reconcileOneshots(ctx context.Context) {
	left, _, err := e.cfg.Store.Sandboxes(ctx, SandboxFilter{Mode: Oneshot, Statuses: []Status{Idle}})
	if err != nil {
		e.cfg.Log.Error("list oneshot sandboxes", "err", err)
		return
	}
	for _, s := range left {
		if s.Driver != e.cfg.Driver.Name() {
			continue
		}
		if all, err := e.cfg.Store.Executions(ctx, s.ID, 1); err == nil && len(all) == 1 && all[0].Status.Done() {
			e.afterExecution(all[0])
			continue
		}
		if e.busyWith(s.ID) == "" {
			if err := e.destroyAs(ctx, s, Failed, "the server stopped before its command had started"); err != nil {
				e.cfg.Log.Error("remove a oneshot sandbox", "sandbox", s.ID, "err", err)
			}
		}
	}
}

func (e *Engine) busyWith(sandboxID string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.busy[sandboxID]
}
