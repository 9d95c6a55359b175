// Package image turns the name of a runtime into files: it holds the catalog
// of runtimes and makes, keeps and checks the root filesystems sandboxes start
// from.
//
// A [Catalog] owns one directory:
//
//	<Dir>/<hex digest>/root        the tree, never changed once it is there
//	<Dir>/<hex digest>/meta.json   where it came from, when, how big it is
//	<Dir>/refs/<runtime id>        which digest a runtime stands for here
//	<Dir>/locks/<runtime id>       held while a process makes that runtime
//	<Dir>/empty                    what masks show
//	<Dir>/build-*                  work in progress, removed when abandoned
//
// A layer appears by one rename of a finished, synced directory, so a crash, a
// full disk or a cancelled request never leaves one that is half there. What
// is left of a build whose process died is found by its lost lock and removed
// by the next New.
//
// The digest of a layer is that of its tree as it lies on the disk (names,
// modes, owners, contents, link targets, file capabilities; no times), so
// Verify can tell at any later time whether somebody changed it.
//
// # Where files come from
//
// host:latest shows this machine's own /usr read-only and a small skeleton
// made from a white list of /etc. base:latest is a clean Debian stable: an OCI
// image where a registry answers within seconds, bootstrapped with mmdebstrap
// from a Debian mirror otherwise. Both arrive as tar streams and go through
// one extractor that treats every entry as hostile.
package image
