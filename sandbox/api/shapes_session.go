package api

import (
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// Session describes an interactive terminal in a sandbox.
type Session struct {
	SessionID   string    `json:"sessionId"`
	SandboxID   string    `json:"sandboxId"`
	Name        string    `json:"name"`
	Owner       string    `json:"owner"`
	Command     string    `json:"command,omitempty"` // empty: the login shell
	User        string    `json:"user,omitempty"`    // in the sandbox
	Status      string    `json:"status"`            // attached, detached, ended
	RecordingID string    `json:"recordingId,omitempty"`
	ExitCode    *int      `json:"exitCode,omitempty"`
	Signal      string    `json:"signal,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
	DetachedAt  time.Time `json:"detachedAt,omitzero"`
	EndedAt     time.Time `json:"endedAt,omitzero"`
	ActiveAt    time.Time `json:"activeAt,omitzero"`
	EndsAt      time.Time `json:"endsAt,omitzero"` // when it will be ended, if it stays detached
	Viewers     []Viewer  `json:"viewers"`
}

// Viewer is one client of a session.
type Viewer struct {
	Principal string    `json:"principal"`
	From      string    `json:"from,omitempty"`
	Mode      string    `json:"mode"` // control, watch
	Since     time.Time `json:"since"`
	Cols      uint16    `json:"cols,omitempty"`
	Rows      uint16    `json:"rows,omitempty"`
}

// Live reports whether the session has not ended.
func (s Session) Live() bool { return s.Status != string(sandbox.SessionEnded) }

// SessionList answers GET /v1/sessions and GET /v1/sandboxes/{id}/sessions.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// SessionUpdate is the body of PATCH /v1/sandboxes/{id}/sessions/{session}.
type SessionUpdate struct {
	Name string `json:"name"`
}

func sessionShape(s sandbox.Session) Session {
	out := Session{
		SessionID: s.ID, SandboxID: s.SandboxID, Name: s.Name, Owner: s.Owner, Command: s.Command, User: s.User,
		Status: string(s.Status), RecordingID: s.Recording, Reason: s.Reason,
		CreatedAt: s.CreatedAt.UTC(), DetachedAt: s.DetachedAt.UTC(), EndedAt: s.EndedAt.UTC(), ActiveAt: s.ActiveAt.UTC(), EndsAt: s.EndsAt.UTC(),
		Viewers: []Viewer{},
	}
	if s.Exit != nil {
		code := s.Exit.Status()
		out.ExitCode, out.Signal = &code, s.Exit.Signal
	}
	for _, v := range s.Viewers {
		out.Viewers = append(out.Viewers, Viewer{
			Principal: v.Principal, From: v.From, Mode: string(v.Mode), Since: v.Since.UTC(), Cols: v.Size.Cols, Rows: v.Size.Rows,
		})
	}
	return out
}

// Recording describes the record of what a session showed.
type Recording struct {
	RecordingID string    `json:"recordingId"`
	SandboxID   string    `json:"sandboxId"`
	SessionID   string    `json:"sessionId"`
	Session     string    `json:"session"`
	Owner       string    `json:"owner"`
	Command     string    `json:"command,omitempty"` // empty: the login shell
	Input       bool      `json:"input"`             // what was typed is in it
	Bytes       int64     `json:"bytes"`
	DurationMs  int64     `json:"durationMs"`
	Complete    bool      `json:"complete"`
	CreatedAt   time.Time `json:"createdAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"` // none while it is being made
}

// RecordingList answers GET /v1/recordings; Total counts all that match.
type RecordingList struct {
	Recordings []Recording `json:"recordings"`
	Total      int         `json:"total"`
}

func recordingShape(r sandbox.Recording) Recording {
	return Recording{
		RecordingID: r.ID, SandboxID: r.SandboxID, SessionID: r.SessionID, Session: r.Session, Owner: r.Owner, Command: r.Command,
		Input: r.Input, Bytes: r.Bytes, DurationMs: r.Duration.Milliseconds(), Complete: r.Complete,
		CreatedAt: r.CreatedAt.UTC(), EndedAt: r.EndedAt.UTC(),
	}
}
