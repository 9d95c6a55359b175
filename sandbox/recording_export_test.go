package sandbox

import "context"

// SessionTap is what a session gives its recording.
type SessionTap = sessionTap

// BeginRecording and GoOnRecording are what sessions ask of recordings.
func (e *Engine) BeginRecording(ctx context.Context, s *Session, q *SessionRequest) (SessionTap, error) {
	return e.recordings.begin(ctx, s, q)
}

func (e *Engine) GoOnRecording(ctx context.Context, s *Session) (SessionTap, int64, error) {
	return e.recordings.goOn(ctx, s)
}
