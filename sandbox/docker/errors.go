package docker

import (
	"errors"
	"io"
	"strings"
	"syscall"
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
