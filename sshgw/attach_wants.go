package sshgw

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The environment variables by which a client says what it wants of a session.
// They are for the gateway and are not passed on.
const (
	envSession = "SANDGATE_SESSION"
	envRecord  = "SANDGATE_RECORD"
)

// wants is what a client wants of a session.
type wants struct{ session, record string }

// set takes a variable that is meant for the gateway. What it says is read
// when the session starts, so that the client hears about a mistake: ssh does
// not tell that a variable was refused.
func (w *wants) set(name, value string) bool {
	if len(value) > maxRef {
		value = value[:maxRef]
	}
	switch name {
	case envSession:
		w.session = value
	case envRecord:
		w.record = value
	default:
		return false
	}
	return true
}

// request turns it into what the Engine is asked for.
func (w wants) request(name string) (sandbox.SessionRequest, error) {
	r := sandbox.SessionRequest{Name: name, Mode: sandbox.ViewControl}
	share := false
	for word := range strings.SplitSeq(w.session, ",") {
		switch word {
		case "":
		case "share":
			share = true
		case "alone":
			r.Alone = true
		case "watch":
			r.Mode = sandbox.ViewWatch
		case "create":
			r.Open = sandbox.OpenCreate
		case "attach":
			r.Open = sandbox.OpenAttach
		default:
			return r, fault.InvalidField(envSession, "%q is none of watch, share, alone, create and attach", word)
		}
	}
	watch := r.Mode == sandbox.ViewWatch
	switch {
	case share && r.Alone, watch && r.Alone, watch && share:
		return r, fault.InvalidField(envSession, "choose one of watch, share and alone")
	case watch && r.Open == sandbox.OpenCreate:
		return r, fault.InvalidField(envSession, "there is nothing to watch in a session that is to be created")
	case watch:
		r.Open = sandbox.OpenAttach
	}
	if r.Open == sandbox.OpenAttach && name == "" {
		return r, fault.InvalidField(envSession, "say which session: ssh -t <sandbox>+<session>@<gateway>; `session list` shows them")
	}
	switch w.record {
	case "", "0":
	case "1":
		r.Record = true
	case "input":
		r.Record, r.RecordInput = true, true
	default:
		return r, fault.InvalidField(envRecord, "%q is none of 0, 1 and input", w.record)
	}
	return r, nil
}
