package tree

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Limits bound what an archive may unpack to. Zero fields take the default.
type Limits struct {
	Bytes   int64 // content, of refused and skipped entries too (1 EiB)
	Entries int64 // (1,000,000)
}

// Bounds on the ratio of what an archive unpacks to and what arrived of it:
// below freeBytes there is none.
const (
	freeBytes = 64 << 20
	maxRatio  = 250
)

func (l Limits) withDefaults() Limits {
	return Limits{Bytes: cmp.Or(max(l.Bytes, 0), int64(1)<<60), Entries: cmp.Or(max(l.Entries, 0), 1_000_000)}
}

// Unpack unpacks an archive that is read from r into a directory. Zip needs
// random access; scratch opens a file for it that nobody else sees.
//
// Nothing is made outside of the directory: an entry that is absolute, contains "..", is
// too long to be named, or leads through a link out of it ends the unpacking
// with an Invalid error that names it; so do entries beyond the limits, with
// Exhausted. What was unpacked before is in the totals and stays; of a zip, the
// names are checked before anything is made. Files that exist are replaced,
// never written through. Links may lead anywhere: they are not followed here.
//
// Modes and times are kept, owners and the set-id bits are not. Devices, pipes
// and sockets are skipped and counted.
func Unpack(ctx context.Context, dir *os.File, f Format, r io.Reader, limits Limits, scratch func() (*os.File, error)) (Totals, error) {
	root := int(dir.Fd())
	u := &unpacker{ctx: ctx, root: root, dir: root, limits: limits.withDefaults()}
	r = source{r}
	var err error
	switch f {
	case Zip:
		err = u.zip(r, scratch)
	case TarGz:
		err = u.gzip(r)
	case Tar:
		err = u.tar(r)
	default:
		err = fault.InvalidField("format", `must be "tar", "tar.gz" or "zip"`)
	}
	u.leave("")
	u.moveTo(root, "")
	runtime.KeepAlive(dir)
	return u.totals, err
}

// entry is one entry of an archive.
type entry struct {
	name     string // as the archive has it
	kind     fs.FileMode
	mode     fs.FileMode // permission and sticky bits
	modified time.Time
	size     int64
	target   string // of a link
	hard     bool   // the link is a hard one
	content  io.Reader
}

type unpacker struct {
	ctx    context.Context
	root   int // descriptor
	limits Limits
	totals Totals
	seen   int64 // entries
	bytes  int64 // announced

	// The directory that the last entry was in, by the path that the archive
	// gave and by the one that leads there without links: most entries follow
	// others of their directory, and need not be led there from the root.
	dir   int // descriptor
	asked string
	real  string
	links int // that are being followed
	// The directories that were made on the way there, innermost last: their
	// modes and times are set when nothing more is put into them.
	pending []pendingDir
}

type pendingDir struct {
	asked    string
	real     string
	mode     fs.FileMode
	modified time.Time
}

// refused is the error for an entry that is not unpacked.
func refused(code fault.Code, name, why string, args ...any) error {
	return fault.New(code, "archive entry %q "+why, append([]any{wire.Printable(name, 200)}, args...)...)
}

// clean checks the name of an entry, or of what a hard link leads to, and
// returns it without what means nothing; "." is the root itself.
func clean(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refused(fault.Invalid, name, `contains ".."`)
		}
		if len(part) > wire.MaxName {
			return "", refused(fault.Invalid, name, "is %d bytes long; a name has at most %d", len(part), wire.MaxName)
		}
	}
	switch {
	case strings.HasPrefix(name, "/"):
		return "", refused(fault.Invalid, name, "is absolute")
	case len(name) >= wire.MaxPath:
		return "", refused(fault.Invalid, name, "is %d bytes long; a path has at most %d", len(name), wire.MaxPath-1)
	case name == "" || strings.ContainsRune(name, 0):
		return "", refused(fault.Invalid, name, "is no path")
	}
	return path.Clean(name), nil
}

// admit counts an entry against the limits.
func (u *unpacker) admit(name string, size int64) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.seen++; u.seen > u.limits.Entries {
		return refused(fault.Exhausted, name, "is one too many: at most %d are unpacked", u.limits.Entries)
	}
	if size < 0 || size > u.limits.Bytes-u.bytes {
		return refused(fault.Exhausted, name, "does not fit: the archive may unpack to %d bytes here, and this entry has %d after %d", u.limits.Bytes, size, u.bytes)
	}
	u.bytes += size
	return nil
}

// unpack unpacks one entry.
func (u *unpacker) unpack(e entry) error {
	if err := u.admit(e.name, e.size); err != nil {
		return err
	}
	name, err := clean(e.name)
	if err != nil || name == "." {
		return err
	}
	err = u.put(name, e)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errEscapes):
		return refused(fault.Invalid, e.name, "leads through a link out of the directory")
	case errors.Is(err, fs.ErrExist):
		return refused(fault.Exists, e.name, "would replace a directory")
	}
	return u.explain(e.name, err)
}

// explain says what an error means that came up in an archive, at an entry if
// there is a name.
func (u *unpacker) explain(name string, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*SourceError](err); ok || u.ctx.Err() != nil {
		return err
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return &os.PathError{Op: "unpack", Path: cmp.Or(name, "the archive"), Err: errno}
	}
	why := err.Error()
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		why = "it ends too early"
	}
	if name != "" {
		return refused(fault.Invalid, name, "is damaged: %s", wire.Printable(why, 200))
	}
	return fault.InvalidField("archive", "it is damaged, or not of this format: %s", wire.Printable(why, 200))
}

// SourceError is an error of the reader that an archive comes from.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return e.Err.Error() }
func (e *SourceError) Unwrap() error { return e.Err }

// source marks the errors of a reader.
type source struct{ r io.Reader }

func (s source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		err = &SourceError{err}
	}
	return n, err
}

// errEscapes means that a link leads out of the directory.
var errEscapes = errors.New("leads out")

func (u *unpacker) put(name string, e entry) error {
	if e.kind.IsDir() {
		return u.putDir(name, e)
	}
	switch {
	case e.kind == 0, e.kind == fs.ModeSymlink, e.hard:
	default:
		u.totals.skip(name)
		return nil
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	base := path.Base(name)
	switch {
	case e.hard:
		return u.putHardLink(name, base, e)
	case e.kind == fs.ModeSymlink:
		if err := u.replacing(base, func() error { return unix.Symlinkat(e.target, u.dir, base) }); err != nil {
			return err
		}
		u.totals.Links++
		return nil
	}
	return u.putFile(base, e)
}

func (u *unpacker) putDir(name string, e entry) error {
	if err := u.enter(name); err != nil {
		return err
	}
	u.totals.Dirs++
	u.pending = append(u.pending, pendingDir{name, u.real, e.mode, e.modified})
	return nil
}

func (u *unpacker) putFile(base string, e entry) error {
	var f *os.File
	err := u.replacing(base, func() error {
		fd, err := unix.Openat(u.dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			f = os.NewFile(uintptr(fd), base)
		}
		return err
	})
	if err != nil {
		return err
	}
	n, err := copyAll(f, &limited{u.ctx, e.content, e.size})
	if err == nil && n < e.size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Chmod(e.mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = unlinkat(u.dir, base, 0) // half of it would look like all of it
		return err
	}
	u.totals.Files++
	u.totals.Bytes += n
	u.setTime(base, e.modified)
	return nil
}

// setTime sets when an entry of the present directory was changed. What an
// archive says may be no time; then it stays as it is.
func (u *unpacker) setTime(base string, modified time.Time) {
	if ts, err := unix.TimeToTimespec(modified); err == nil {
		_ = unix.UtimesNanoAt(u.dir, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

func (u *unpacker) putHardLink(name, base string, e entry) error {
	target, err := clean(e.target)
	if err != nil {
		return refused(fault.Invalid, e.name, "is a link out of the directory")
	}
	if target == name {
		return nil
	}
	from, _, err := u.find(path.Dir(target))
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if err := u.replacing(base, func() error { return unix.Linkat(from, path.Base(target), u.dir, base, 0) }); err != nil {
		return err
	}
	u.totals.Files++
	return nil
}

// replacing makes something, having removed what has its name, if anything has.
// A directory is not removed.
func (u *unpacker) replacing(base string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := lstat(u.dir, base, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fs.ErrExist
	}
	if err := unlinkat(u.dir, base, 0); err != nil {
		return err
	}
	return create()
}
