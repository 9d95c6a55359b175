package sandbox

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxEventTypes bounds how many types one query names.
const maxEventTypes = 32

// EventHistory returns events of one sandbox, or of all the actor may see.
func (a *Actor) EventHistory(ctx context.Context, ref string, q EventQuery) ([]Event, error) {
	f := EventFilter{Types: q.Types, Since: q.Since, Until: q.Until, After: q.After, Before: q.Before, Asc: q.Asc, Limit: q.Limit}
	var err error
	if f.Limit, err = pageLimit(q.Limit, 0); err != nil {
		return nil, err
	}
	if len(q.Types) > maxEventTypes {
		return nil, fault.InvalidField("type", "at most %d types can be named", maxEventTypes)
	}
	if q.After < 0 || q.Before < 0 {
		return nil, fault.InvalidField("after", "must not be negative")
	}
	if ref != "" {
		s, err := a.resolve(ctx, ref, "EventHistory")
		if err != nil {
			return nil, err
		}
		f.SandboxID = s.ID
	} else {
		if err := a.allow("EventHistory"); err != nil {
			return nil, err
		}
		if a.who.ID == "" && !a.who.IsAdmin() {
			return nil, nil
		}
		if f.Owner, f.Seen, err = a.seen(ctx); err != nil {
			return nil, err
		}
	}
	return a.e.cfg.Store.EventHistory(ctx, f)
}
