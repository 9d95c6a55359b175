package api

import (
	"net/http"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// sessionRoutes are the endpoints of sessions and of their recordings.
func (s *server) sessionRoutes() {
	s.handle("GET /v1/sessions", http.StatusOK, s.sessions)
	s.handle("GET /v1/sandboxes/{id}/sessions", http.StatusOK, s.sessions)
	s.handle("GET /v1/sandboxes/{id}/sessions/{session}", http.StatusOK, s.session)
	s.handle("PATCH /v1/sandboxes/{id}/sessions/{session}", http.StatusOK, s.renameSession)
	s.handle("POST /v1/sandboxes/{id}/sessions/{session}/detach", http.StatusOK, s.detachSession)
	s.handle("POST /v1/sandboxes/{id}/sessions/{session}/kill", http.StatusOK, s.killSession)
	s.handle("GET /v1/recordings", http.StatusOK, s.recordings)
	s.handle("GET /v1/recordings/{id}", http.StatusOK, s.recording)
	s.handle("GET /v1/recordings/{id}/data", http.StatusOK, s.readRecording)
	s.handle("DELETE /v1/recordings/{id}", http.StatusOK, s.deleteRecording)
}

// sessions lists the sessions of the sandbox of the path, or, without one, of
// all that may be seen.
func (s *server) sessions(r *request) (any, error) {
	all, _, err := query{r.URL.Query()}.boolean("all")
	if err != nil {
		return nil, err
	}
	found, err := r.ops.Sessions(r.Context(), r.PathValue("id"), all)
	if err != nil {
		return nil, err
	}
	out := SessionList{Sessions: []Session{}}
	for _, ses := range found {
		out.Sessions = append(out.Sessions, sessionShape(ses))
	}
	return out, nil
}

func (s *server) session(r *request) (any, error) {
	return sessionAnswer(r.ops.Session(r.Context(), r.PathValue("id"), r.PathValue("session")))
}

func sessionAnswer(ses sandbox.Session, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return sessionShape(ses), nil
}

func (s *server) renameSession(r *request) (any, error) {
	var body SessionUpdate
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	if body.Name == "" {
		return nil, fault.InvalidField("name", "is empty")
	}
	return sessionAnswer(r.ops.RenameSession(r.Context(), r.PathValue("id"), r.PathValue("session"), body.Name))
}

func (s *server) detachSession(r *request) (any, error) {
	return nil, r.ops.DetachSession(r.Context(), r.PathValue("id"), r.PathValue("session"))
}

func (s *server) killSession(r *request) (any, error) {
	return nil, r.ops.KillSession(r.Context(), r.PathValue("id"), r.PathValue("session"))
}

// recordings lists recordings of a sandbox, or of all that may be seen.
func (s *server) recordings(r *request) (any, error) {
	q := query{r.URL.Query()}
	limit, err := q.limit(100)
	if err != nil {
		return nil, err
	}
	offset, err := q.number("offset", 0)
	if err != nil {
		return nil, err
	}
	found, total, err := r.ops.Recordings(r.Context(), q.Get("sandboxId"), limit, offset)
	if err != nil {
		return nil, err
	}
	out := RecordingList{Recordings: []Recording{}, Total: total}
	for _, rec := range found {
		out.Recordings = append(out.Recordings, recordingShape(rec))
	}
	return out, nil
}

func (s *server) recording(r *request) (any, error) {
	rec, err := r.ops.Recording(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return recordingShape(rec), nil
}

// castType is the media type of asciicasts.
const castType = "application/x-asciicast"

// readRecording sends a recording in the format asked for; follow=true goes on
// until one that is being made has ended.
func (s *server) readRecording(r *request) (any, error) {
	q := query{r.URL.Query()}
	follow, _, err := q.boolean("follow")
	if err != nil {
		return nil, err
	}
	format, kind := sandbox.RecordingFormat(q.Get("format")), castType
	switch format {
	case "":
		format = sandbox.AsciicastV2
	case sandbox.PlainText:
		kind = "text/plain; charset=utf-8"
	}
	out := s.rawAnswer(r.w, r.Request, kind)
	return s.streamed(out, r.ops.ReadRecording(r.Context(), r.PathValue("id"), format, follow, out))
}

func (s *server) deleteRecording(r *request) (any, error) {
	return nil, r.ops.DeleteRecording(r.Context(), r.PathValue("id"))
}
