// Package fault holds the one error type that crosses Sandgate's doors.
//
// An [Error] has two audiences. A person reads [Error.Error]: one line, in
// plain words, with the next step where there is one. The log reads
// [Error.Cause], which never reaches a client. The closed set of codes decides
// everything mechanical: the HTTP status and code, the exit status of a
// command, the text of the dashboard.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Code says what kind of failure an error is. The set is closed: every place
// that maps codes to something else handles all of them.
type Code string

// The codes, with the meaning each one promises to callers.
const (
	// Invalid means the request itself is wrong; Field names the culprit.
	// Nothing was changed.
	Invalid Code = "INVALID"
	// NotFound means the thing does not exist, or the caller may not know
	// whether it exists: the two are indistinguishable on purpose.
	NotFound Code = "NOT_FOUND"
	// Exists means the name or id is taken.
	Exists Code = "EXISTS"
	// Denied means the caller is known and the thing is visible, but the
	// operation is not allowed to them.
	Denied Code = "DENIED"
	// Busy means a conflicting operation is under way; retrying later helps.
	Busy Code = "BUSY"
	// State means the thing is in a state that does not allow the operation.
	State Code = "STATE"
	// Unsupported means this engine or host cannot do it, ever, as it is set up.
	Unsupported Code = "UNSUPPORTED"
	// Exhausted means a limit or a resource (disk, memory, quota) ran out.
	Exhausted Code = "EXHAUSTED"
	// Timeout means a deadline that the caller or the policy set has passed.
	Timeout Code = "TIMEOUT"
	// Cancelled means the caller gave up.
	Cancelled Code = "CANCELLED"
	// Unavailable means something Sandgate depends on does not answer now.
	Unavailable Code = "UNAVAILABLE"
	// Internal means a defect or an unexpected failure of the host.
	Internal Code = "INTERNAL"
)

// Codes lists every code, for tables that must be complete.
func Codes() []Code {
	return []Code{Invalid, NotFound, Exists, Denied, Busy, State, Unsupported, Exhausted, Timeout, Cancelled, Unavailable, Internal}
}

// Error is the typed error. The zero value is not useful; use [New] and [Wrap].
type Error struct {
	Code    Code
	Kind    string // what the error is about: "sandbox", "execution", "runtime", "key"; may be empty
	Field   string // the input that was wrong, for Invalid; may be empty
	Message string // one line for a person
	Cause   error  // for the log and for errors.Is; may be nil
}

// Error returns the line for a person. It never contains the cause.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap gives errors.Is and errors.As access to the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of the given code.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an error of the given code whose cause is for the log alone.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// InvalidField makes an Invalid error that names the offending field.
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Code: Invalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// About returns a copy of e that says what it is about.
func (e *Error) About(kind string) *Error {
	c := *e
	c.Kind = kind
	return &c
}

// From turns any error into an *Error. Errors that carry no code become
// Cancelled or Timeout when they stem from a context, and Internal otherwise,
// with a message that gives nothing away. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Wrap(err, Cancelled, "the request was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(err, Timeout, "the request took too long")
	}
	return Wrap(err, Internal, "something went wrong inside sandgate; its log has the cause")
}

// CodeOf returns the code of err, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return CodeOf(err) == code }
