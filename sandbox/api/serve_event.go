package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// events lists events of the sandbox of the path, or, without one, of all that
// may be seen.
func (s *server) events(r *request) (any, error) {
	q := query{r.URL.Query()}
	ask := sandbox.EventQuery{}
	var err error
	if ask.Limit, err = q.limit(100); err != nil {
		return nil, err
	}
	if ask.Asc, err = q.ascending(true); err != nil {
		return nil, err
	}
	if ask.After, err = q.position("after"); err != nil {
		return nil, err
	}
	if ask.Before, err = q.position("before"); err != nil {
		return nil, err
	}
	if ask.Since, err = q.moment("since"); err != nil {
		return nil, err
	}
	if ask.Until, err = q.moment("until"); err != nil {
		return nil, err
	}
	for _, typ := range q.list("type") {
		ask.Types = append(ask.Types, sandbox.EventType(typ))
	}
	found, err := r.ops.EventHistory(r.Context(), r.PathValue("id"), ask)
	if err != nil {
		return nil, err
	}
	out := EventList{Events: []Event{}}
	for _, e := range found {
		out.Events = append(out.Events, eventShape(e))
	}
	return out, nil
}

// position reads the number of an event; without one it is 0.
func (q query) position(name string) (int64, error) {
	v := q.Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.InvalidField(name, "%q is not a number of 0 or more", clip(v))
	}
	return n, nil
}

// beatTime is how often a line goes out when nothing happens: it finds out
// whether the client is still there.
const beatTime = 15 * time.Second

// followEvents sends events as lines of JSON as they happen, until the client
// goes away: those after a number, or from now on. An empty line means that
// nothing happened for a while.
func (s *server) followEvents(r *request) (any, error) {
	after := int64(-1)
	if q := (query{r.URL.Query()}); q.Has("after") {
		var err error
		if after, err = q.position("after"); err != nil {
			return nil, err
		}
	}
	sub, err := r.ops.Subscribe(r.Context(), r.PathValue("id"), after)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	out := s.rawAnswer(r.w, r.Request, contentNDJSON)
	out.begin()
	beat := time.NewTicker(beatTime)
	defer beat.Stop()
	for {
		line := []byte{'\n'}
		select {
		case n, ok := <-sub.Events():
			if !ok {
				return nil, errStreamed
			}
			e := eventShape(n.Event)
			e.Missed = n.Missed
			if line, err = json.Marshal(e); err != nil {
				return nil, err
			}
			line = append(line, '\n')
		case <-beat.C:
		}
		if _, err := out.Write(line); err != nil {
			return nil, errStreamed
		}
	}
}
