package docker

import (
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// isConnectionLost reports whether the engine went away in the middle of an
// answer.
func isConnectionLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED)
}

// isDiskFull reports whether the engine ran out of space, which it tells in
// words alone.
func isDiskFull(err error) bool {
	s := err.Error()
	return strings.Contains(s, "no space left on device") || strings.Contains(s, "disk quota exceeded")
}

// diskFault is the fault of a file of the driver's own that could not be
// written or read. One that has a code already keeps it.
func diskFault(err error, what string) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, "the disk is full")
	}
	return fault.Wrap(err, fault.Internal, "%s", what)
}
