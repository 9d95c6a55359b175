package layer

import (
	"archive/tar"
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// refuse is the answer to content that no layer may have.
func refuse(name, format string, args ...any) error {
	return fault.New(fault.Invalid, "the layer's entry %.200q "+format, append([]any{name}, args...)...)
}

// failure gives an error its code. What a person reads says what was done and
// no path of the host.
func failure(err error, doing string) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "the disk is full")
	case errors.Is(err, unix.EEXIST):
		return fault.Wrap(err, fault.Exists, "cannot %s: the target exists", doing)
	}
	return fault.Wrap(err, fault.Internal, "cannot %s; the log has the cause", doing)
}

// archiveFailure is the failure of reading an archive.
func archiveFailure(err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(err, fault.Invalid, "the layer is no complete tar archive")
	}
	return failure(err, "read the layer")
}
