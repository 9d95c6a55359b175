package agent

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

func isViolation(err error) bool { return errors.Is(err, wire.ErrProtocol) }

func invalidRequest(err error) error {
	return fault.New(fault.Invalid, "the guest does not understand the request: %v", err)
}

// response is what the wire carries for a result or an error.
func response(result any, err error) wire.Response {
	if err == nil {
		raw, merr := wire.Marshal(result)
		if merr == nil {
			return wire.Response{Result: raw}
		}
		err = merr
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		// What went wrong happened inside the sandbox, so its text gives
		// nothing away.
		f = fault.New(fault.Internal, "inside the sandbox: %v", err)
	}
	return wire.Response{Error: &wire.Error{
		Code:    string(f.Code),
		Field:   wire.Printable(f.Field, 64),
		Message: wire.Printable(f.Message, wire.MaxText),
	}}
}

// systemError turns an error of the operating system into a fault whose text
// starts with what was being done to what.
func systemError(err error, doing string) error {
	code := fault.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		code = fault.Denied
	case errors.Is(err, syscall.EROFS):
		code = fault.Denied
	case errors.Is(err, syscall.ENOTEMPTY): // which fs.ErrExist includes
		code = fault.State
	case errors.Is(err, fs.ErrExist):
		code = fault.Exists
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ETXTBSY):
		code = fault.Busy
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EFBIG):
		code = fault.Exhausted
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EXDEV),
		errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EOPNOTSUPP):
		code = fault.Invalid
	}
	return fault.Wrap(err, code, "%s: %s", doing, reason(err))
}

// reason is the last, shortest part of an error: the operating system's words.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
