package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// file unpacks a regular file.
func (x *extractor) file(dir *os.Root, base string, hdr *tar.Header, content io.Reader) error {
	// A sparse file may be larger here than in the stream.
	if x.written += hdr.Size; hdr.Size < 0 || x.written < 0 || x.written > x.bounds.Bytes {
		return hostile("files of more than %d bytes", x.bounds.Bytes)
	}
	f, err := dir.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, content, x.buf); err != nil {
		return err
	}
	fd := int(f.Fd())
	if !x.unprivileged {
		if err := unix.Fchown(fd, hdr.Uid, hdr.Gid); err != nil {
			return err
		}
	}
	// After the change of owner, which clears set-user-id and capabilities.
	if err := unix.Fchmod(fd, x.mode(hdr)); err != nil {
		return err
	}
	if value := hdr.PAXRecords["SCHILY.xattr."+capabilityXattr]; value != "" && !x.unprivileged {
		if err := unix.Fsetxattr(fd, capabilityXattr, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("set file capabilities: %w", err)
		}
	}
	// Python and make compare times, so files keep theirs.
	at := unix.NsecToTimeval(hdr.ModTime.UnixNano())
	if err := unix.Futimes(fd, []unix.Timeval{at, at}); err != nil {
		return err
	}
	return f.Close()
}

// own gives a directory its owner and mode.
func (x *extractor) own(dir *os.Root, base string, hdr *tar.Header) error {
	d, err := dir.Open(base)
	if err != nil {
		return err
	}
	defer d.Close()
	if !x.unprivileged {
		if err := unix.Fchown(int(d.Fd()), hdr.Uid, hdr.Gid); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(d.Fd()), x.mode(hdr))
}

// mode is the mode an entry gets. A user must be able to read and remove their
// own layers, so the owner of an unprivileged one has at least those rights.
func (x *extractor) mode(hdr *tar.Header) uint32 {
	mode := uint32(hdr.Mode) & 0o7777
	if x.unprivileged {
		mode |= 0o400
		if hdr.Typeflag == tar.TypeDir {
			mode |= 0o700
		}
	}
	return mode
}

// hardlink links full to a regular file of the tree.
func (x *extractor) hardlink(full, target string) error {
	name, err := entryName(target)
	if err != nil {
		return err
	}
	parent, err := x.resolve(path.Dir(name), false)
	if err != nil {
		return fmt.Errorf("hard link to %.200q: %w", target, err)
	}
	old := path.Join(parent, path.Base(name))
	fi, err := x.root.Lstat(old)
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	if fi.Mode()&fs.ModeSymlink == 0 && !fi.Mode().IsRegular() {
		return hostile("a hard link to %.200q, which is no file", target)
	}
	return x.root.Link(old, full)
}
