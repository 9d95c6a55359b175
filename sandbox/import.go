package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

const (
	// maxArchive bounds an archive, and all the layers in it unpacked: one layer
	// may be named many times.
	maxArchive = 16 << 30
	// scratchPrefix begins the names of folders that imports work in.
	scratchPrefix = "import-"
)

// ImportSnapshot makes a snapshot of an archive. What q leaves empty is as the
// archive has it.
func (a *Actor) ImportSnapshot(ctx context.Context, r io.Reader, q SnapshotRequest) (Snapshot, error) {
	if err := a.allow("ImportSnapshot"); err != nil {
		return Snapshot{}, err
	}
	if err := a.enclose(&q.Project); err != nil {
		return Snapshot{}, err
	}
	if err := a.mayLabel(ctx, q.Project, q.Org); err != nil {
		return Snapshot{}, err
	}
	e := a.e
	if a.who.ID == "" {
		return Snapshot{}, fault.New(fault.Denied, "snapshots can be imported by a known principal only")
	}
	if err := e.diskSpace(); err != nil {
		return Snapshot{}, err
	}
	archives, err := e.archives()
	if err != nil {
		return Snapshot{}, err
	}
	saver, err := e.saver()
	if err != nil {
		return Snapshot{}, err
	}
	fromArchive := q.Tag == ""
	if err := q.validate(); err != nil { // before anything long is begun
		return Snapshot{}, err
	}
	scratch, err := os.MkdirTemp(e.layersDir(), scratchPrefix)
	if err != nil {
		return Snapshot{}, fault.Wrap(err, fault.Exhausted, "the import needs a folder in %s; is the disk full?", e.layersDir())
	}
	defer os.RemoveAll(scratch)
	room, err := a.saveRoom(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	in, err := archives.ReadArchive(ctx, r, scratch, maxArchive)
	if err != nil {
		return Snapshot{}, err
	}
	q.fill(&in, fromArchive)
	runtime, err := e.importRuntime(ctx, archives, &in)
	if err != nil {
		return Snapshot{}, err
	}
	layers, err := e.importLayers(ctx, saver, in.Layers, runtime.Digest, min(room, maxArchive))
	if err != nil {
		return Snapshot{}, err
	}
	top := layers[0]
	var size int64
	for _, l := range layers {
		size += l.SizeBytes
	}
	recorded, err := a.grant(ctx, size)
	if err != nil {
		e.discardUnrecorded(top.ID)
		e.dropLayers(top.Below...)
		return Snapshot{}, err
	}
	defer recorded()
	p := Snapshot{
		ID: e.cfg.NewID(prefixSnapshot), Name: q.Name, Tag: q.Tag, Description: q.Description, Public: q.Public,
		Owner: a.who.ID, Project: q.Project, Org: q.Org, Layer: top.ID, Driver: top.Driver, Runtime: runtime, Metadata: q.Metadata,
		SizeBytes: top.SizeBytes, Files: top.Files, CreatedAt: e.cfg.Now(),
	}
	if err := e.cfg.Store.CreateSnapshot(ctx, p, top); err != nil {
		e.discardUnrecorded(top.ID)
		e.dropLayers(top.Below...)
		return Snapshot{}, err
	}
	e.pulse.beat()
	return p, nil
}

// fill takes from an archive what the request leaves open, where it is in
// order.
func (r *SnapshotRequest) fill(in *Archive, tag bool) {
	if r.Name == "" && len(in.Name) <= maxSnapshotName && !strings.ContainsFunc(in.Name, unicode.IsControl) {
		r.Name = in.Name
	}
	if r.Description == "" && len(in.Description) <= maxDescription {
		r.Description = in.Description
	}
	if tag && ValidateTag(in.Tag) == nil {
		r.Tag = in.Tag
	}
}

// importRuntime finds the files that the layers of an archive lie on: those
// that are here already, those in the archive, or, where they do not travel,
// those that the runtime has on this host.
func (e *Engine) importRuntime(ctx context.Context, archives Archives, in *Archive) (RuntimeRef, error) {
	rt := in.Runtime
	if _, err := e.cfg.Images.ProvideDigest(ctx, rt); err == nil {
		return e.described(ctx, rt)
	} else if !fault.Is(err, fault.Unavailable) {
		return rt, err
	}
	if in.Base == nil {
		here, rootfs, err := e.cfg.Images.Provide(ctx, rt.Name, func(string) {})
		if fault.Is(err, fault.NotFound) {
			return rt, fault.Wrap(err, fault.Unavailable, "the archive needs the runtime %s, which this server does not have", rt.Name).About("snapshot")
		}
		if err != nil {
			return rt, err
		}
		rt.ID, rt.Digest = here.ID, rootfs.Digest
		return e.described(ctx, rt)
	}
	r, err := in.Base.Open(ctx)
	if err != nil {
		return rt, err
	}
	defer r.Close()
	if rt.Digest, err = archives.ImportRuntime(ctx, rt, r, maxArchive); err != nil {
		return rt, err
	}
	return e.described(ctx, rt)
}

// described is a runtime of an archive with what this server says about the one
// of that id: an archive chooses no icons and tags for it.
func (e *Engine) described(ctx context.Context, rt RuntimeRef) (RuntimeRef, error) {
	all, err := e.cfg.Images.Runtimes(ctx)
	for _, r := range all {
		if r.ID == rt.ID {
			rt.Name, rt.IconURL, rt.BrandColor, rt.Tags = r.Name, r.IconURL, r.BrandColor, r.Tags
			return rt, err
		}
	}
	rt.IconURL, rt.BrandColor = "", ""
	return rt, err
}

// importLayers makes saved layers of those of an archive. All but the topmost
// are recorded. They may hold fewer than most bytes.
func (e *Engine) importLayers(ctx context.Context, saver driver.Saver, in []ArchiveLayer, runtimeDigest string, most int64) (layers []Layer, err error) {
	defer func() {
		if err != nil {
			for _, l := range layers {
				e.dropLayers(l.ID)
				e.discardUnrecorded(l.ID)
			}
		}
	}()
	left := most
	for i, part := range slices.Backward(in) {
		l := Layer{
			ID: e.cfg.NewID(prefixLayer), Driver: e.cfg.Driver.Name(), RuntimeDigest: runtimeDigest,
			Digest: part.Digest, CreatedAt: e.cfg.Now(),
		}
		for _, below := range layers {
			l.Below = append(l.Below, below.ID)
		}
		if err := e.importLayer(ctx, saver, part, &l, left); err != nil {
			return layers, err
		}
		if left -= l.SizeBytes; left <= 0 {
			e.discard(l.ID)
			return layers, fault.New(fault.Exhausted, "this archive cannot be imported: its layers hold more than the %s there is room for", FormatBytes(most)).About("snapshot")
		}
		layers = append([]Layer{l}, layers...)
		if i > 0 {
			if err := e.cfg.Store.AddLayer(ctx, l); err != nil {
				return layers, err
			}
		}
	}
	return layers, nil
}

// importLayer makes one. The digest is checked at the end of the stream, which
// a driver need not read to.
func (e *Engine) importLayer(ctx context.Context, saver driver.Saver, in ArchiveLayer, l *Layer, limit int64) error {
	r, err := in.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := saver.Import(ctx, e.layerDir(l.ID), r, limit); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	if err == nil {
		l.SizeBytes, l.Files, err = e.measure(ctx, l.ID)
	}
	if errors.Is(err, tar.ErrHeader) {
		err = fault.Wrap(err, fault.Internal, "the imported layer cannot be read back").About("snapshot")
	}
	if err != nil {
		e.discard(l.ID)
	}
	return err
}
