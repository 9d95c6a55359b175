package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"path"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// FileType says what a file is.
type FileType string

// The types of files.
const (
	TypeFile   = FileType(wire.TypeFile)
	TypeDir    = FileType(wire.TypeDir)
	TypeLink   = FileType(wire.TypeLink) // symbolic
	TypePipe   = FileType(wire.TypePipe)
	TypeSocket = FileType(wire.TypeSocket)
	TypeDevice = FileType(wire.TypeDevice)
	TypeOther  = FileType(wire.TypeOther)
)

// FileInfo describes a file of a sandbox.
//
// Paths are bytes that somebody in the sandbox chose: they need not be UTF-8
// and may contain what moves a terminal's cursor. They contain no zero, and
// those of a listing no part that is empty, "." or "..".
type FileInfo struct {
	Path     string // absolute, or in a listing relative to its directory
	Type     FileType
	Mode     uint32 // the lowest twelve bits
	Size     int64  // of a regular file
	Modified time.Time
	UID, GID uint32
	Target   string // of a link
}

// needFiles refuses a guest that knows nothing of files but to read and write.
func (c *Conn) needFiles() error {
	if c.hello.Protocol >= wire.FilesVersion {
		return nil
	}
	return errOlderGuest
}

// errOlderGuest is for what the guest of a sandbox is too old for.
var errOlderGuest = fault.New(fault.Unsupported, "this sandbox runs an older guest that cannot do this; pause it and resume it without its memory, or make a new sandbox")

// file performs an operation on files that consists of a request and an answer.
func (c *Conn) file(ctx context.Context, op wire.Op, args, result any) error {
	if err := c.needFiles(); err != nil {
		return err
	}
	return c.call(ctx, op, args, result)
}

// StatOptions say what Stat looks at.
type StatOptions struct {
	User     string // looks; root when empty
	NoFollow bool   // a link at the end of the path is described itself
}

// Stat describes one file.
//
// Codes: NotFound, Denied, Invalid when the path leads through a file.
func (c *Conn) Stat(ctx context.Context, path string, o StatOptions) (FileInfo, error) {
	var e wire.Entry
	if err := c.file(ctx, wire.OpStat, wire.Stat{Path: wire.Path(path), User: o.User, NoFollow: o.NoFollow}, &e); err != nil {
		return FileInfo{}, err
	}
	info, err := checkEntry(e, false)
	if err != nil {
		return FileInfo{}, c.violated(err)
	}
	return info, nil
}

// MkdirOptions say how Mkdir makes a directory.
type MkdirOptions struct {
	User    string // makes it; root when empty
	Mode    uint32 // 0 is 0755
	Parents bool   // make those above too; one that exists is no error
}

// Mkdir makes a directory and returns those it made, outermost first.
//
// Codes: Exists, NotFound when the one above is missing, Denied, Exhausted.
func (c *Conn) Mkdir(ctx context.Context, path string, o MkdirOptions) ([]string, error) {
	var made wire.Made
	if err := c.file(ctx, wire.OpMkdir, wire.Mkdir{Path: wire.Path(path), User: o.User, Mode: o.Mode, Parents: o.Parents}, &made); err != nil {
		return nil, err
	}
	return c.directories(made)
}

// RemoveFile removes what is no directory; links are not followed. It reports
// whether there was anything.
//
// Codes: Invalid for a directory, Denied.
func (c *Conn) RemoveFile(ctx context.Context, path, user string) (found bool, err error) {
	var r wire.Removed
	err = c.file(ctx, wire.OpRemove, wire.Remove{Path: wire.Path(path), User: user}, &r)
	return r.Found, err
}

// RemoveDirOptions say how RemoveDir removes a directory.
type RemoveDirOptions struct {
	User      string // removes it; root when empty
	Recursive bool   // with all that is in it
}

// RemoveDir removes a directory and reports whether there was one. Links are
// removed and not followed; a mount ends it. The end of ctx ends it half-way.
//
// Codes: State when it is not empty and Recursive is not set, Busy for a
// mount, Invalid for what is no directory, Denied.
func (c *Conn) RemoveDir(ctx context.Context, path string, o RemoveDirOptions) (found bool, err error) {
	var r wire.Removed
	err = c.file(ctx, wire.OpRemove, wire.Remove{Path: wire.Path(path), User: o.User, Dir: true, Recursive: o.Recursive}, &r)
	return r.Found, err
}

// Rename moves a file or a directory; a file at to is replaced.
//
// Codes: NotFound, Exists or State when to is a directory with something in
// it, Invalid across filesystems or into itself, Denied.
func (c *Conn) Rename(ctx context.Context, from, to, user string) error {
	return c.file(ctx, wire.OpRename, wire.Rename{From: wire.Path(from), To: wire.Path(to), User: user}, nil)
}

// Chmod sets the lowest twelve bits of the mode of what a path leads to.
//
// Codes: NotFound, Denied.
func (c *Conn) Chmod(ctx context.Context, path string, mode uint32, user string) error {
	return c.file(ctx, wire.OpChmod, wire.Chmod{Path: wire.Path(path), User: user, Mode: mode}, nil)
}

// ListOptions say what ListFiles lists.
type ListOptions struct {
	User      string // lists; root when empty
	Recursive bool   // what is in directories too; links are not followed
	Depth     int    // levels, when recursive; 0 is all
	Limit     int64  // entries; 0 is all
}

// Listing is how a listing ended.
type Listing struct {
	Dir     FileInfo // the directory
	More    bool     // the limit ended it
	Skipped int64    // directories that could not be read
}

// allLevels is deeper than paths can name.
const allLevels = wire.MaxPath

// ListFiles calls each for the entries of a directory, in no order but parents
// first, as they come: a directory of any size takes no memory here. An error
// of each ends the listing and is returned.
//
// Codes: NotFound, Denied, Invalid for what is no directory.
func (c *Conn) ListFiles(ctx context.Context, path string, o ListOptions, each func(FileInfo) error) (Listing, error) {
	if err := c.needFiles(); err != nil {
		return Listing{}, err
	}
	args := wire.ListFiles{Path: wire.Path(path), User: o.User, Depth: 1, Limit: o.Limit}
	if o.Recursive {
		args.Depth = allLevels
		if o.Depth > 0 {
			args.Depth = min(o.Depth, allLevels)
		}
	}
	op, err := c.open(ctx, wire.OpListFiles, args)
	if err != nil {
		return Listing{}, err
	}
	defer op.leave()
	var dir wire.Entry
	if err := op.answer(ctx, &dir); err != nil {
		return Listing{}, err
	}
	var l Listing
	if l.Dir, err = checkEntry(dir, false); err != nil {
		return Listing{}, c.violated(err)
	}
	stop := context.AfterFunc(ctx, func() { op.SetReadDeadline(longAgo) })
	defer stop()
	frames := wire.NewFrameReader(op)
	for count := int64(0); ; {
		kind, _, err := frames.Next()
		if err != nil {
			return l, op.failed(ctx, err)
		}
		switch kind {
		case wire.KindEntries:
			raw, err := frames.Payload()
			if err != nil {
				return l, op.failed(ctx, err)
			}
			entries, err := readEntries(raw)
			if count += int64(len(entries)); err == nil && o.Limit > 0 && count > o.Limit {
				err = wire.Violation("more entries than were asked for")
			}
			if err != nil {
				return l, c.violated(err)
			}
			for _, e := range entries {
				if err := each(e); err != nil {
					return l, err
				}
			}
		case wire.KindResult:
			var end wire.Listed
			if err := op.readResult(ctx, frames, &end); err != nil {
				return l, err
			}
			if end.Skipped < 0 {
				return l, c.violated(wire.Violation("%d directories were skipped", end.Skipped))
			}
			l.More, l.Skipped = end.More, end.Skipped
			return l, nil
		default:
			return l, c.violated(wire.Violation("frame of kind %d in a listing", kind))
		}
	}
}

// readEntries decodes a frame of entries, one by one as readInfos does.
func readEntries(raw []byte) ([]FileInfo, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, wire.Violation("a list of files is none")
	}
	var infos []FileInfo
	for d.More() {
		if len(infos) == wire.MaxEntries {
			return nil, wire.Violation("more than %d files at once", wire.MaxEntries)
		}
		var e wire.Entry
		if err := d.Decode(&e); err != nil {
			return nil, wire.Violation("an entry in a list of files is none: %v", err)
		}
		info, err := checkEntry(e, true)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// checkEntry checks what a guest says of a file, in a listing or by itself.
func checkEntry(e wire.Entry, listed bool) (FileInfo, error) {
	p := string(e.Path)
	switch {
	case listed && !e.Path.Below(), !listed && (!e.Path.Whole() || !path.IsAbs(p)):
		return FileInfo{}, wire.Violation("the path %q", wire.Printable(p, 64))
	case e.Mode > wire.MaxMode, e.Size < 0, e.Size > wire.MaxFileSize:
		return FileInfo{}, wire.Violation("file of %d bytes with the mode %o", e.Size, e.Mode)
	case e.Target != "" && (!e.Target.Whole() || e.Type != wire.TypeLink):
		return FileInfo{}, wire.Violation("a link of %d bytes", len(e.Target))
	}
	switch e.Type {
	case wire.TypeFile, wire.TypeDir, wire.TypeLink, wire.TypePipe, wire.TypeSocket, wire.TypeDevice, wire.TypeOther:
	default:
		return FileInfo{}, wire.Violation("a file of the type %q", wire.Printable(string(e.Type), 32))
	}
	return FileInfo{
		Path: p, Type: FileType(e.Type), Mode: e.Mode, Size: e.Size, Modified: time.Unix(0, e.Modified),
		UID: e.UID, GID: e.GID, Target: string(e.Target),
	}, nil
}
