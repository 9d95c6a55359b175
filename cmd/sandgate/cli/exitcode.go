package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// The exit codes of sandgate, the same over ssh. `run`, `exec` and `ssh` end
// with the code of the command they ran, so their own failures have codes that
// commands seldom use, as with `docker run`.
const (
	exitOK          = 0
	exitError       = 1   // sandgate could not do it; run and exec use exitOwn
	exitUsage       = 2   // the command line, or what it asks for, is wrong
	exitTimeout     = 124 // run, exec: the command ran out of time
	exitOwn         = 125 // run, exec: sandgate failed before or beside the command
	exitInterrupted = 130 // ended by Ctrl-C or a signal
	exitPipe        = 141 // run, exec: whoever read the output has gone
)

// usageError is a mistake in the command line that cobra or a command found.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCodeError ends the program with a code, and says nothing when err is nil:
// the command in the sandbox has said what there is to say.
type exitCodeError struct {
	code int
	err  error
}

func (e exitCodeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e exitCodeError) Unwrap() error { return e.err }

// own marks every failure of run and exec that is not the command's.
func own(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[exitCodeError](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return exitCodeError{exitInterrupted, err}
	}
	return exitCodeError{exitOwn, err}
}

// report prints an error as one line and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitError
	switch exit, ok := errors.AsType[exitCodeError](err); {
	case ok:
		code = exit.code
		if exit.err == nil {
			return code
		}
		err = exit.err
	case errors.Is(err, context.Canceled) || fault.Is(err, fault.Cancelled):
		code = exitInterrupted
	case errors.As(err, new(usageError)) || fault.Is(err, fault.Invalid):
		code = exitUsage
	}
	line := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		line = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		line = "the server took too long"
	}
	fmt.Fprintf(w, "sandgate: %s\n", oneLine(line))
	return code
}

// oneLine makes one line without control characters of a message.
func oneLine(s string) string { return clean(strings.Join(strings.Fields(s), " ")) }
