package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// WriteArchive implements sandbox.Archives. Each layer is read twice: its
// digest is its name and its size stands before it, and a second copy on the
// disk would cost more than a second look.
func (c *Catalog) WriteArchive(ctx context.Context, w io.Writer, a sandbox.Archive) ([]string, error) {
	var layers []sandbox.ArchiveLayer // the lowest first, as images have them
	for _, l := range slices.Backward(a.Layers) {
		layers = append(layers, l)
	}
	if a.Base != nil {
		layers = append([]sandbox.ArchiveLayer{*a.Base}, layers...)
	}
	parts := make([]v1.Descriptor, len(layers))
	for i, l := range layers {
		size, digest, err := copyLayer(ctx, io.Discard, l)
		if err != nil {
			return nil, err
		}
		parts[i] = v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: size, Digest: digest}
	}
	docs, err := documentsOf(a, parts)
	if err != nil {
		return nil, err
	}
	out := &archiveWriter{tar: tar.NewWriter(w), at: a.CreatedAt, written: make(map[v1.Hash]bool)}
	for _, d := range docs {
		if err := out.document(d.name, d.content); err != nil {
			return nil, fmt.Errorf("write archive: %w", err)
		}
	}
	for i, l := range layers {
		if err := out.layer(ctx, l, parts[i]); err != nil {
			return nil, err
		}
	}
	if err := out.tar.Close(); err != nil {
		return nil, fmt.Errorf("write archive: %w", err)
	}
	var digests []string
	for i := range a.Layers {
		digests = append(digests, parts[len(parts)-1-i].Digest.String())
	}
	return digests, nil
}

// copyLayer copies a layer and returns its size and digest.
func copyLayer(ctx context.Context, w io.Writer, l sandbox.ArchiveLayer) (int64, v1.Hash, error) {
	r, err := l.Open(ctx)
	if err != nil {
		return 0, v1.Hash{}, err
	}
	defer r.Close()
	sum := sha256.New()
	size, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(w, sum)}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	if err != nil {
		return 0, v1.Hash{}, err
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	if l.Digest != "" && l.Digest != digest.String() {
		return 0, v1.Hash{}, fault.New(fault.Unavailable, "a saved layer was damaged on the disk: it should be %.19s… and is %.19s…; restore it from a backup", l.Digest, digest).About("snapshot")
	}
	return size, digest, nil
}

// namedDocument is a small file of an archive.
type namedDocument struct {
	name    string
	content []byte
}

// documentsOf are all files of an archive but its layers.
func documentsOf(a sandbox.Archive, layers []v1.Descriptor) ([]namedDocument, error) {
	notes, err := annotations(a)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: a.CreatedAt.UTC().Truncate(time.Second)}
	config := v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Created: created, Author: "sandgate",
		Config: v1.Config{WorkingDir: sandbox.Workspace, Cmd: []string{"/bin/sh"}, Labels: map[string]string{annotationVersion: archiveVersion}},
		RootFS: v1.RootFS{Type: "layers"},
	}
	for range layers {
		config.History = append(config.History, v1.History{Created: created, CreatedBy: "sandgate"})
	}
	docker := []map[string]any{{"RepoTags": []string{imageName(a)}}}
	var paths []string
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.Digest)
		paths = append(paths, blobsPrefix+l.Digest.Hex)
	}
	configBlob, configDesc, err := blobOf(config, types.OCIConfigJSON)
	if err != nil {
		return nil, err
	}
	docker[0]["Config"], docker[0]["Layers"] = configBlob.name, paths
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: configDesc, Layers: layers, Annotations: notes,
	}
	manifestBlob, desc, err := blobOf(manifest, types.OCIManifestSchema1)
	if err != nil {
		return nil, err
	}
	desc.Platform = &v1.Platform{Architecture: runtime.GOARCH, OS: "linux"}
	desc.Annotations = map[string]string{annotationImageName: "docker.io/" + imageName(a)}
	if a.Tag != "" {
		desc.Annotations[annotationRefName] = a.Tag
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{desc}})
	if err != nil {
		return nil, err
	}
	load, err := json.Marshal(docker)
	if err != nil {
		return nil, err
	}
	return []namedDocument{
		{layoutFile, []byte(layoutText)}, {indexFile, index}, {dockerFile, load}, manifestBlob, configBlob,
	}, nil
}

// blobOf is a document as a blob.
func blobOf(doc any, kind types.MediaType) (namedDocument, v1.Descriptor, error) {
	content, err := json.Marshal(doc)
	if err != nil {
		return namedDocument{}, v1.Descriptor{}, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	return namedDocument{blobsPrefix + digest.Hex, content}, v1.Descriptor{MediaType: kind, Size: size, Digest: digest}, err
}

// archiveWriter writes the tar archive.
type archiveWriter struct {
	tar     *tar.Writer
	at      time.Time
	written map[v1.Hash]bool
}

func (o *archiveWriter) header(name string, size int64) error {
	return o.tar.WriteHeader(&tar.Header{
		Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, ModTime: o.at.Truncate(time.Second), Format: tar.FormatPAX,
	})
}

func (o *archiveWriter) document(name string, content []byte) error {
	if err := o.header(name, int64(len(content))); err != nil {
		return err
	}
	_, err := o.tar.Write(content)
	return err
}

// layer writes a layer as a blob, once.
func (o *archiveWriter) layer(ctx context.Context, l sandbox.ArchiveLayer, want v1.Descriptor) error {
	if o.written[want.Digest] {
		return nil
	}
	o.written[want.Digest] = true
	if err := o.header(blobsPrefix+want.Digest.Hex, want.Size); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	size, digest, err := copyLayer(ctx, o.tar, l)
	if err != nil {
		return err
	}
	if size != want.Size || digest != want.Digest {
		return fmt.Errorf("write archive: layer %s was %s at the second look", want.Digest, digest)
	}
	return nil
}
