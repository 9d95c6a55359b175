package driver

import (
	"context"
	"io"
)

// Saver is an optional capability (FeatureSave): keeping what a sandbox has
// written, as the start of others or to go back to.
//
// A saved layer is the private layer of a sandbox as it was at one moment:
// files, directories, links, owners, modes, times, extended attributes, and
// marks for what was deleted of the layers below. It lives in a directory that
// the Engine names and the driver fills; only the driver reads it, and nobody
// changes it. Its form is the driver's own; Export and Import carry it from
// one driver to another.
//
// A saved layer is used by naming it in Rootfs.Saved. It must stay as long as
// a sandbox that names it exists.
type Saver interface {
	// Save keeps the private layer of a sandbox in dir, which does not exist
	// yet and whose parent does. A running sandbox is held still while the
	// driver reads, so that all files are of one moment, and no longer: well
	// below 100 ms for 10 MB. When Save returns nil the layer is complete and
	// durable; otherwise nothing is left of it.
	//
	// Codes: NotFound; Exists when dir is there; State for a broken sandbox;
	// Exhausted when the disk is full.
	Save(ctx context.Context, id, dir string) error

	// Restore replaces the private layer of a sandbox that does not run by a
	// copy of a saved one. The sandbox keeps its layers below, so the saved
	// layer must have been taken from this sandbox, or from one with equal
	// layers. A memory image is discarded. After a failure or a crash the
	// sandbox has either its old files or the saved ones.
	//
	// Codes: NotFound; State when the sandbox runs; Invalid when dir holds no
	// saved layer; Exhausted when the disk is full.
	Restore(ctx context.Context, id, dir string) error

	// Export writes a saved layer as an uncompressed OCI image layer: a tar
	// archive with deletions as ".wh." files. Entries are sorted by path and
	// the bytes depend on the content alone, so that their digest names it.
	// What a driver itself put into every sandbox is not part of it.
	//
	// Codes: Invalid when dir holds no saved layer.
	Export(ctx context.Context, dir string, w io.Writer) error

	// Import makes a saved layer in dir, as Save does, from an OCI image
	// layer. The archive may come from anywhere: what would reach outside of
	// the layer, or is no kind of file a layer has, is refused by name. It
	// never keeps more than limit bytes of file content; 0 is no limit.
	//
	// Codes: Exists; Invalid; Exhausted.
	Import(ctx context.Context, dir string, r io.Reader, limit int64) error

	// Discard deletes a saved layer and whatever the driver keeps elsewhere
	// for it. Discarding what is not there does nothing. That nobody uses it
	// is for the caller to know.
	Discard(ctx context.Context, dir string) error
}
