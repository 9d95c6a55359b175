package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Codes on the wire are the kind of the thing and the code of the fault,
// "SANDBOX_NOT_FOUND", or the code of the fault alone. Two differ, because the
// published client knows them by another name.
const (
	codeUnauthorized = "UNAUTHORIZED"       // Denied, before it is known who asks
	codeTerminated   = "SANDBOX_TERMINATED" // State, for a sandbox that has ended
)

// statuses is the HTTP status of each fault code. 501 and 502 are avoided: the
// published client repeats requests that get them.
var statuses = map[fault.Code]int{
	fault.Invalid:     http.StatusBadRequest,
	fault.NotFound:    http.StatusNotFound,
	fault.Exists:      http.StatusConflict,
	fault.Denied:      http.StatusForbidden,
	fault.Busy:        http.StatusConflict,
	fault.State:       http.StatusConflict,
	fault.Unsupported: http.StatusUnprocessableEntity,
	fault.Exhausted:   http.StatusInsufficientStorage,
	fault.Timeout:     http.StatusGatewayTimeout,
	fault.Cancelled:   499, // as nginx says it: the client went away
	fault.Unavailable: http.StatusServiceUnavailable,
	fault.Internal:    http.StatusInternalServerError,
}

// failure makes the envelope and the status of an error.
func failure(err error) (int, envelope) {
	e := fault.From(err)
	status, ok := statuses[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	code := wireCode(e)
	if errors.As(err, new(terminated)) {
		code = codeTerminated
	}
	return status, envelope{Message: e.Error(), Code: code, Field: e.Field}
}

// terminated marks a State error that is so because the sandbox has ended for
// good, which has a code of its own.
type terminated struct{ error }

func (t terminated) Unwrap() error { return t.error }

func wireCode(e *fault.Error) string {
	if e.Kind == "" {
		return string(e.Code)
	}
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(e.Kind)) + "_" + string(e.Code)
}

// fromWire turns a failure envelope back into the error it was made of.
func fromWire(status int, env envelope) *fault.Error {
	e := &fault.Error{Field: env.Field, Message: env.Message}
	if env.Field != "" {
		e.Message = strings.TrimPrefix(env.Message, env.Field+": ")
	}
	switch env.Code {
	case codeUnauthorized:
		e.Code = fault.Denied
		return e
	case codeTerminated:
		e.Code, e.Kind = fault.State, "sandbox"
		return e
	}
	for _, c := range fault.Codes() {
		if kind, ok := strings.CutSuffix(env.Code, string(c)); ok && (kind == "" || strings.HasSuffix(kind, "_")) {
			e.Code = c
			e.Kind = strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(kind, "_")), "_", " ")
			return e
		}
	}
	// Not one of our codes: another server, or a proxy before ours.
	e.Code = fault.Internal
	for c, s := range statuses {
		if s == status {
			e.Code = c
		}
	}
	if status == http.StatusUnauthorized {
		e.Code = fault.Denied
	}
	return e
}
