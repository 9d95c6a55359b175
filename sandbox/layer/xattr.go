package layer

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	paxXattr      = "SCHILY.xattr."
	trustedOpaque = "trusted.overlay.opaque"
	userOpaque    = "user.overlay.opaque"
	aclPrefix     = "system.posix_acl_"
)

// carried reports whether an extended attribute is of the content. What the
// kernel or a security module of one host keeps in others means nothing
// elsewhere, and trusted ones steer overlayfs.
func carried(name string) bool {
	switch {
	case strings.HasPrefix(name, "user.overlay."):
		return false
	case strings.HasPrefix(name, "user."), name == "security.capability",
		name == aclPrefix+"access", name == aclPrefix+"default":
		return !strings.Contains(name, "=")
	}
	return false
}

// fdXattrs calls f for each extended attribute of an open file. A filesystem
// without them has none.
func fdXattrs(fd int, f func(name string, value []byte) error) error {
	var list [1024]byte
	names := list[:]
	n, err := unix.Flistxattr(fd, names)
	for errors.Is(err, unix.ERANGE) && len(names) < 1<<20 {
		names = make([]byte, 4*len(names))
		n, err = unix.Flistxattr(fd, names)
	}
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range bytes.SplitSeq(names[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		value, err := fdXattr(fd, string(name))
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue // gone meanwhile, or listed without a value
		}
		if err != nil {
			return err
		}
		if err := f(string(name), value); err != nil {
			return err
		}
	}
	return nil
}

func fdXattr(fd int, name string) ([]byte, error) {
	var small [256]byte
	n, err := unix.Fgetxattr(fd, name, small[:])
	if err == nil {
		return bytes.Clone(small[:n]), nil
	}
	if !errors.Is(err, unix.ERANGE) {
		return nil, err
	}
	value := make([]byte, 64<<10) // the most that Linux has
	n, err = unix.Fgetxattr(fd, name, value)
	return value[:max(n, 0)], err
}

// setXattrs gives an open file the attributes of an entry. What this host's
// filesystem cannot hold at all is left out, as the mode holds without it.
func setXattrs(fd int, e *Entry) error {
	for name, value := range e.Xattrs {
		err := unix.Fsetxattr(fd, name, []byte(value), 0)
		switch {
		case err == nil, errors.Is(err, unix.ENOTSUP):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL):
			return refuse(e.Path, "has an extended attribute %.100q that cannot be kept", name)
		default:
			return err
		}
	}
	return nil
}

// setOpaque marks an open directory the way overlayfs does, and the way it
// does without privileges where that is all there is.
func setOpaque(fd int) error {
	err := unix.Fsetxattr(fd, trustedOpaque, []byte("y"), 0)
	if errors.Is(err, unix.EPERM) {
		return unix.Fsetxattr(fd, userOpaque, []byte("y"), 0)
	}
	return err
}

// readAttributes takes the extended attributes of an overlay directory's file.
func (e *Entry) readAttributes(fd int) error {
	return fdXattrs(fd, func(name string, value []byte) error {
		switch name {
		case trustedOpaque, userOpaque:
			e.Opaque = e.Type == Dir && string(value) == "y"
		case "trusted.overlay.redirect", "trusted.overlay.metacopy":
			return refuse(e.Path, "is kept as a reference to another layer, which cannot be read as files")
		default:
			e.keep(name, string(value))
		}
		return nil
	})
}

func (e *Entry) keep(name, value string) {
	if !carried(name) || value == "" {
		return
	}
	if e.Xattrs == nil {
		e.Xattrs = make(map[string]string)
	}
	e.Xattrs[name] = value
}

// takeRecords takes the extended attributes of an archive's header.
func (e *Entry) takeRecords(records map[string]string, form form) error {
	for key, value := range records {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok {
			continue
		}
		if len(name) > maxName || len(value) > 64<<10 {
			return refuse(e.Path, "has an extended attribute of %d bytes", len(name)+len(value))
		}
		if form == upperForm {
			if name == trustedOpaque && value == "y" {
				e.Opaque = e.Type == Dir
				continue
			}
			if strings.HasPrefix(name, aclPrefix) {
				raw, err := base64.RawStdEncoding.DecodeString(value)
				if err != nil {
					return refuse(e.Path, "has a damaged access control list")
				}
				value = string(raw)
			}
		} else if strings.HasPrefix(name, "trusted.") || strings.HasPrefix(name, "user.overlay.") {
			return refuse(e.Path, "has the extended attribute %.100q, which no layer may set", name)
		}
		e.keep(name, value)
	}
	return nil
}

// records are the extended attributes as an archive has them.
func (e *Entry) records(form form) map[string]string {
	if len(e.Xattrs) == 0 && (form == neutralForm || !e.Opaque) {
		return nil
	}
	all := make(map[string]string, len(e.Xattrs)+1)
	for name, value := range e.Xattrs {
		if form == upperForm && strings.HasPrefix(name, aclPrefix) {
			value = base64.RawStdEncoding.EncodeToString([]byte(value))
		}
		all[paxXattr+name] = value
	}
	if form == upperForm && e.Opaque {
		all[paxXattr+trustedOpaque] = "y"
	}
	return all
}
