package sandbox

import (
	"context"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

var _ SessionOperations = (*Actor)(nil)

// maxSessionList bounds a list of sessions.
const maxSessionList = 1000

// Sessions returns the sessions of a sandbox, or of all.
func (a *Actor) Sessions(ctx context.Context, ref string, all bool) ([]Session, error) {
	f := SessionFilter{LiveOnly: !all}
	var list []Session
	if ref != "" {
		s, err := a.resolve(ctx, ref, "Sessions")
		if err != nil {
			return nil, err
		}
		f.SandboxID, f.Limit = s.ID, maxSessionList
		if list, err = a.e.cfg.Store.Sessions(ctx, f); err != nil {
			return nil, err
		}
	} else {
		if err := a.allow("Sessions"); err != nil {
			return nil, err
		}
		found, err := a.e.cfg.Store.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{} // sandboxes, by whether the actor may see them
		for _, s := range found {
			may, known := seen[s.SandboxID]
			if !known {
				err := a.inside(ctx, s.SandboxID, "Sessions", noSession(s.ID))
				if err != nil && !fault.Is(err, fault.NotFound) {
					return nil, err
				}
				may = err == nil
				seen[s.SandboxID] = may
			}
			if may && len(list) < maxSessionList {
				list = append(list, s)
			}
		}
	}
	shown := make([]Session, 0, len(list))
	for _, s := range list {
		if a.e.present(&s); all || s.Status != SessionEnded {
			shown = append(shown, s)
		}
	}
	return shown, nil
}

// present adds to a record what this server alone knows.
func (e *Engine) present(s *Session) {
	if ls := e.sessions.byID(s.ID); ls != nil && s.Status != SessionEnded {
		ls.describe(s)
	}
	if end := e.sessions.endOf(s.ID); end != nil {
		end(s)
	}
}

// Session returns one session.
func (a *Actor) Session(ctx context.Context, ref, name string) (Session, error) {
	return a.session(ctx, ref, name, "Session")
}

// session finds a session for an operation: a live one by its name, or any by
// its id.
func (a *Actor) session(ctx context.Context, ref, name string, op operation) (Session, error) {
	sandboxID := ""
	if ref != "" {
		s, err := a.resolve(ctx, ref, op)
		if err != nil {
			return Session{}, err
		}
		sandboxID = s.ID
	}
	switch {
	case isSessionID(name):
		s, err := a.e.cfg.Store.Session(ctx, name)
		if fault.Is(err, fault.NotFound) || err == nil && sandboxID != "" && s.SandboxID != sandboxID {
			return Session{}, noSession(name)
		}
		if err == nil && sandboxID == "" {
			err = a.inside(ctx, s.SandboxID, op, noSession(name))
		}
		if err != nil {
			return Session{}, err
		}
		a.e.present(&s)
		return s, nil
	case sandboxID == "":
		return Session{}, fault.InvalidField("sandbox", "say in which sandbox the session is")
	}
	list, err := a.e.cfg.Store.Sessions(ctx, SessionFilter{SandboxID: sandboxID, Name: clip(name, 64), LiveOnly: true, Limit: 1})
	if err != nil {
		return Session{}, err
	}
	for _, s := range list {
		if a.e.present(&s); s.Status != SessionEnded {
			return s, nil
		}
	}
	return Session{}, noSession(name)
}

// liveSession finds a session that has not ended, and what this server knows of it.
func (a *Actor) liveSession(ctx context.Context, ref, name string, op operation) (Session, *liveSession, error) {
	s, err := a.session(ctx, ref, name, op)
	if err != nil {
		return s, nil, err
	}
	ls := a.e.sessions.byID(s.ID)
	switch {
	case s.Status == SessionEnded:
		err = fault.New(fault.State, "session %q has ended", s.Name).About("session")
	case ls == nil:
		box, berr := a.e.cfg.Store.Sandbox(ctx, s.SandboxID)
		if berr == nil {
			berr = a.e.mine(&box)
		}
		if err = berr; err == nil {
			err = errSessionOver // in this moment
		}
	}
	return s, ls, err
}

// RenameSession gives a session another name.
func (a *Actor) RenameSession(ctx context.Context, ref, name, to string) (Session, error) {
	if err := ValidateSessionName(to); err != nil {
		return Session{}, err
	}
	s, ls, err := a.liveSession(ctx, ref, name, "RenameSession")
	if err != nil || s.Name == to {
		return s, err
	}
	err = a.e.sessions.rename(ls, to, func() error {
		s, err = a.e.cfg.Store.UpdateSession(ctx, s.ID, func(n *Session) ([]Event, error) {
			if n.Status == SessionEnded {
				return nil, errSessionOver
			}
			from := n.Name
			n.Name = to
			return []Event{a.e.event(n.SandboxID, EventSessionRename, a.who.ID, map[string]any{"sessionId": n.ID, "name": to, "from": from})}, nil
		})
		return err
	})
	if err != nil {
		return Session{}, err
	}
	a.e.present(&s)
	a.e.pulse.beat()
	return s, nil
}

// DetachSession detaches all clients of a session.
func (a *Actor) DetachSession(ctx context.Context, ref, name string) error {
	_, ls, err := a.liveSession(ctx, ref, name, "DetachSession")
	if err != nil {
		return err
	}
	ls.detachAll(fault.Wrap(ErrDetached, fault.Cancelled, "%s detached you from session %q; it goes on", a.who.ID, ls.name()).About("session"), "detached by "+a.who.ID)
	return nil
}

// KillSession ends a session. One that is paused with its sandbox can end only
// when that is resumed.
func (a *Actor) KillSession(ctx context.Context, ref, name string) error {
	s, err := a.session(ctx, ref, name, "KillSession")
	if err != nil || s.Status == SessionEnded {
		return err
	}
	_, ls, err := a.liveSession(ctx, s.SandboxID, s.ID, "KillSession")
	if err != nil {
		return err
	}
	select {
	case <-ls.started:
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	box, err := a.e.cfg.Store.Sandbox(ctx, s.SandboxID)
	if err != nil {
		return err
	}
	if box.asleep() {
		if _, err := a.ready(ctx, s.SandboxID, "KillSession"); err != nil {
			return err
		}
	}
	ls.part("ended by "+a.who.ID, a.who.ID)
	return ls.waitGone(ctx)
}

// endsAt is when a detached session will be ended, the zero time for never. The
// caller holds mu.
func (ls *liveSession) endsAt() time.Time {
	keep := ls.e.cfg.SessionKeep
	if keep <= 0 || ls.asleep || ls.detachedAt.IsZero() {
		return time.Time{}
	}
	return ls.detachedAt.Add(keep)
}
