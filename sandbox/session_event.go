package sandbox

// The events of sessions. They tell who was there and when, and never what was
// typed.
const (
	EventSessionStart  EventType = "session:start"
	EventSessionAttach EventType = "session:attach"
	EventSessionDetach EventType = "session:detach" // how long, what went through, and why
	EventSessionRename EventType = "session:rename"
	EventSessionEnd    EventType = "session:end" // how it ended, or why
)

const prefixSession = "ses"

// attachEvent tells that a client has come.
func (ls *liveSession) attachEvent(v *viewer, name string) Event {
	data := map[string]any{"sessionId": ls.id, "name": name, "mode": string(v.mode)}
	if v.from != "" {
		data["from"] = v.from
	}
	return ls.e.event(ls.sandboxID, EventSessionAttach, v.principal, data)
}

// detachEvent tells that a client has left.
func (ls *liveSession) detachEvent(v *viewer, name, reason string) Event {
	data := map[string]any{
		"sessionId": ls.id, "name": name, "mode": string(v.mode),
		"durationMs": ls.e.cfg.Now().Sub(v.since).Milliseconds(),
		"sent":       v.draw.sent.Load(), "received": v.received.Load(),
	}
	if v.from != "" {
		data["from"] = v.from
	}
	if reason != "" {
		data["reason"] = reason
	}
	return ls.e.event(ls.sandboxID, EventSessionDetach, v.principal, data)
}

// endEvent tells how a session ended. bytes is all that it printed, -1 when
// that is not known.
func (ls *liveSession) endEvent(s *Session, by string, bytes int64) Event {
	data := map[string]any{"sessionId": s.ID, "name": s.Name, "durationMs": s.EndedAt.Sub(s.CreatedAt).Milliseconds()}
	if s.Exit != nil {
		data["exitCode"] = s.Exit.Status()
		if s.Exit.Signal != "" {
			data["signal"] = s.Exit.Signal
		}
	}
	if s.Reason != "" {
		data["reason"] = s.Reason
	}
	if bytes >= 0 {
		data["bytes"] = bytes
	}
	return ls.e.event(ls.sandboxID, EventSessionEnd, by, data)
}
