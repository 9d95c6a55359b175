package sandbox

import (
	"context"
	"io"
	"time"
)

// Archives reads and writes exported snapshots, and carries the files of
// runtimes with them: package image.
type Archives interface {
	// WriteArchive writes an OCI image layout as a tar archive and returns the
	// digests of a.Layers. It opens each layer more than once; the bytes must
	// be the same each time, and have the layer's digest where it has one.
	WriteArchive(ctx context.Context, w io.Writer, a Archive) (digests []string, err error)
	// ReadArchive reads such an archive, which may come from anywhere, and
	// keeps its parts in the folder scratch, which exists and is empty; the
	// layers of the answer can be opened as long as it is there. limit bounds
	// the bytes of the whole archive, and of each layer unpacked.
	//
	// Codes: Invalid for anything that is not an archive of ours in order;
	// Exhausted when it is too large or the disk full.
	ReadArchive(ctx context.Context, r io.Reader, scratch string, limit int64) (Archive, error)

	// OpenRuntime streams the files of a runtime as an OCI layer. The bytes
	// depend on the files alone. Unsupported, with the next step, where they
	// are those of this host and do not travel.
	OpenRuntime(ctx context.Context, runtime RuntimeRef) (io.ReadCloser, error)
	// ImportRuntime keeps the files of a runtime that an archive carries and
	// returns their digest: that of runtime, if nothing was changed on the way.
	ImportRuntime(ctx context.Context, runtime RuntimeRef, r io.Reader, limit int64) (digest string, err error)
}

// Archive is a snapshot outside of a server.
type Archive struct {
	Name        string
	Tag         string
	Description string
	CreatedAt   time.Time
	Runtime     RuntimeRef
	Lineage     []string // ids of the snapshots it was made from, its own first
	// Base holds the files of the runtime; nil where they do not travel.
	Base   *ArchiveLayer
	Layers []ArchiveLayer // the saved ones, the topmost first
}

// ArchiveLayer is one layer of an Archive: an uncompressed OCI layer.
type ArchiveLayer struct {
	Digest string // of the bytes ("sha256:…"); empty when not known yet
	Open   func(ctx context.Context) (io.ReadCloser, error)
}
