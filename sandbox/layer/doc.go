// Package layer knows the forms in which what a sandbox has written is kept:
// what lies over the layers below, and what of these is deleted.
//
//   - The neutral form is an uncompressed OCI image layer: a tar archive in
//     which an empty file ".wh.NAME" stands for a deletion and ".wh..wh..opq"
//     for a directory that hides what is below it. Package layer writes it in
//     one way only: entries sorted, times to the nanosecond, numbers for
//     owners. So the bytes depend on the content alone.
//   - The overlay form is a directory as the kernel's overlayfs keeps it:
//     character devices 0:0 are deletions, and the extended attribute
//     trusted.overlay.opaque (or user.overlay.opaque) marks a directory.
//   - The upper form is a tar archive as gVisor writes and reads it: the
//     overlay form with names that begin with "./", in any order.
//
// Everything read here may have been made by somebody hostile. Names that
// climb, repeat or go through a link are refused, sizes are bounded, and no
// symbolic link is followed on the host. Sockets and device nodes are no part
// of a layer: nobody listens on the ones, and the others are a driver's to
// give.
//
// Paths in this package's types are absolute and clean ("/", "/etc/hosts").
// A path means the file inside of the layer, never one of the host. Errors are
// faults: Invalid for content that no layer may have, Exhausted for a bound or
// a full disk, Exists for a target that is there.
package layer

import "time"

// Type is the kind of a file.
type Type string

// The types.
const (
	File  Type = "file"
	Dir   Type = "dir"
	Link  Type = "link"  // symbolic
	Other Type = "other" // a FIFO
)

// Entry is one path of a layer.
type Entry struct {
	Path    string
	Type    Type // empty when Deleted
	Mode    uint32
	UID     int
	GID     int
	Size    int64 // of a File
	ModTime time.Time
	Target  string            // of a Link, as it is
	Same    string            // the path with which a hard link shares its file
	Digest  string            // of the content of a File ("sha256:…"), where it was asked for
	Xattrs  map[string]string // without those that are marks of a layer

	Deleted bool // the path does not exist, whatever is below
	Opaque  bool // of a Dir: what the layers below have in it does not exist
	Implied bool // of a Dir: only what lies in it is known, not how it is itself
}

// Options says how a layer is written.
type Options struct {
	// Skip reports whether a path, with all that is in it, is left out: what a
	// driver has put there and not the sandbox. Nil leaves nothing out.
	Skip func(path string) bool
	// MaxBytes bounds the sizes of all files together: a file of a sandbox may
	// claim a size that no disk has. 0 is no bound.
	MaxBytes int64
}

func (o Options) skip(path string) bool { return o.Skip != nil && path != "/" && o.Skip(path) }

// Limits bound what is read of an archive, and say how it is kept.
type Limits struct {
	Bytes   int64 // sizes of all files together; 0 is no bound
	Entries int   // 0 means DefaultEntries
	Sync    bool  // everything is durable before success is told
}

// DefaultEntries is how many entries a layer may have.
const DefaultEntries = 2_000_000

// Bounds that are the same for everybody.
const (
	maxPath     = 4095 // PATH_MAX without its NUL
	maxName     = 255
	maxDepth    = 256       // directories within each other: each costs a descriptor
	maxMetadata = 512 << 20 // names, targets and attributes of one archive together
	maxTrailer  = 1 << 20   // what may follow the end mark of an archive
)

// Totals is what a tree holds.
type Totals struct {
	Bytes int64 // of regular files, each counted once
	Files int   // entries that are no directory
}

const (
	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
)
