package api

import (
	"encoding/json"

	"github.com/sandgate/sandgate/sandbox"
)

// audit sends records of the audit log as lines of JSON, the oldest first, and
// with follow those that are written from now on, until the client goes away.
// An empty line means that nothing happened for a while.
func (s *server) audit(r *request) (any, error) {
	q := query{r.URL.Query()}
	ask := sandbox.AuditQuery{Principal: q.Get("principal"), Sandbox: q.Get("sandbox")}
	var err error
	if ask.Limit, err = q.number("limit", 0); err != nil {
		return nil, err
	}
	if ask.Since, err = q.moment("since"); err != nil {
		return nil, err
	}
	if ask.Follow, _, err = q.boolean("follow"); err != nil {
		return nil, err
	}
	for _, kind := range q.list("kind") {
		ask.Kinds = append(ask.Kinds, sandbox.AuditKind(kind))
	}
	out := s.rawAnswer(r.w, r.Request, contentNDJSON)
	err = r.ops.Audit(r.Context(), ask, func(rec *sandbox.AuditRecord) error {
		line := []byte{'\n'}
		if rec != nil {
			var err error
			if line, err = json.Marshal(rec); err != nil {
				return err
			}
			line = append(line, '\n')
		}
		_, err := out.Write(line)
		return err
	})
	if err != nil && !out.started {
		return nil, err
	}
	out.begin()
	out.end(err)
	return nil, errStreamed
}

// reload has the server read its files anew.
func (s *server) reload(r *request) (any, error) {
	return r.ops.ReloadServer(r.Context())
}
