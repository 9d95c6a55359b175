package sandbox

import (
	"context"
	"io"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// archives is what reads and writes exported snapshots.
func (e *Engine) archives() (Archives, error) {
	if e.cfg.Archives == nil {
		return nil, fault.New(fault.Unsupported, "this server cannot export and import snapshots").About("snapshot")
	}
	return e.cfg.Archives, nil
}

// ExportSnapshot writes a snapshot as an OCI image layout in a tar archive.
// With it go the files of its runtime, so that it starts where that was never
// made. Those of host:latest stay: there the archive holds what was changed,
// and is imported onto the programs of the other host.
func (a *Actor) ExportSnapshot(ctx context.Context, snapshot string, w io.Writer) error {
	e := a.e
	b, err := a.snapshotBase(ctx, snapshot, "ExportSnapshot")
	if err != nil {
		return err
	}
	archives, err := e.archives()
	if err != nil {
		return err
	}
	p := b.snapshot
	line, err := a.lineage(ctx, p.ID, "ExportSnapshot")
	if err != nil {
		return err
	}
	out := Archive{Name: p.Name, Tag: p.Tag, Description: p.Description, CreatedAt: p.CreatedAt, Runtime: p.Runtime}
	for _, l := range line {
		out.Lineage = append(out.Lineage, l.ID)
	}
	if len(b.rootfs.HostDirs) == 0 {
		out.Base = &ArchiveLayer{Open: func(ctx context.Context) (io.ReadCloser, error) { return archives.OpenRuntime(ctx, p.Runtime) }}
	}
	known := make([]string, len(b.layers))
	for i, id := range b.layers {
		l, err := e.cfg.Store.Layer(ctx, id)
		if err != nil {
			return err
		}
		known[i] = l.Digest
		out.Layers = append(out.Layers, ArchiveLayer{
			Digest: l.Digest, Open: func(ctx context.Context) (io.ReadCloser, error) { return e.openLayer(ctx, id) },
		})
	}
	digests, err := archives.WriteArchive(ctx, w, out)
	if err != nil {
		return err
	}
	for i, id := range b.layers { // the next export can tell whether it was damaged
		if known[i] == "" {
			if err := e.cfg.Store.SetLayerDigest(ctx, id, digests[i]); err != nil && !fault.Is(err, fault.NotFound) {
				e.cfg.Log.Warn("note the digest of a layer", "layer", id, "err", err)
			}
		}
	}
	return nil
}
