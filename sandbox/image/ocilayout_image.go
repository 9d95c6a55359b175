package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// archive reads the image in an archive that was taken apart.
func (u *unpacker) archive() (sandbox.Archive, error) {
	var a sandbox.Archive
	content, err := u.document(indexFile, -1)
	if err != nil {
		return a, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(content))
	if err != nil || len(index.Manifests) != 1 || index.Manifests[0].MediaType != types.OCIManifestSchema1 && index.Manifests[0].MediaType != types.DockerManifestSchema2 {
		return a, refused("it does not hold exactly one image")
	}
	manifest, err := parseBlob(u, index.Manifests[0], v1.ParseManifest)
	if err != nil {
		return a, err
	}
	config, err := parseBlob(u, manifest.Config, v1.ParseConfigFile)
	if err != nil {
		return a, err
	}
	base, err := readAnnotations(manifest, &a)
	if err != nil {
		return a, err
	}
	n := len(manifest.Layers)
	if n == 0 || n > maxImageLayers || n != len(config.RootFS.DiffIDs) || base && n < 2 {
		return a, refused("it has %d layers and names %d", n, len(config.RootFS.DiffIDs))
	}
	a.CreatedAt = config.Created.UTC()
	for i, d := range manifest.Layers {
		l, err := u.layer(d, config.RootFS.DiffIDs[i])
		if err != nil {
			return a, err
		}
		a.Layers = append(a.Layers, l)
	}
	if base {
		a.Base, a.Layers = &a.Layers[0], a.Layers[1:]
	}
	a.Layers = slices.Clone(a.Layers)
	slices.Reverse(a.Layers)
	return a, nil
}

// document reads a small file; size is what it should have, or -1.
func (u *unpacker) document(name string, size int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(u.dir, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, refused("%s is missing", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxDocument || size >= 0 && int64(len(content)) != size {
		return nil, refused("%s has another size than it should", name)
	}
	return content, nil
}

func parseBlob[T any](u *unpacker, d v1.Descriptor, parse func(io.Reader) (*T, error)) (*T, error) {
	if d.Digest.Algorithm != "sha256" || !hexDigest.MatchString(d.Digest.Hex) {
		return nil, refused("%.80q is no digest", d.Digest)
	}
	content, err := u.document(blobsPrefix+d.Digest.Hex, d.Size)
	if err != nil {
		return nil, err
	}
	doc, err := parse(bytes.NewReader(content))
	if err != nil {
		return nil, refused("%s%s cannot be read", blobsPrefix, d.Digest.Hex)
	}
	return doc, nil
}

// layer is a layer of the image. What it unpacks to is checked against diffID
// at the end of every reading.
func (u *unpacker) layer(d v1.Descriptor, diffID v1.Hash) (sandbox.ArchiveLayer, error) {
	for _, h := range []v1.Hash{d.Digest, diffID} {
		if h.Algorithm != "sha256" || !hexDigest.MatchString(h.Hex) {
			return sandbox.ArchiveLayer{}, refused("%.80q is no digest", h)
		}
	}
	compressed := false
	switch d.MediaType {
	case types.OCIUncompressedLayer, types.DockerUncompressedLayer:
	case types.OCILayer, types.DockerLayer:
		compressed = true
	default:
		return sandbox.ArchiveLayer{}, refused("a layer has the form %.80q; tar and tar+gzip can be read", d.MediaType)
	}
	file := filepath.Join(u.dir, filepath.FromSlash(blobsPrefix), d.Digest.Hex)
	fi, err := os.Lstat(file)
	if err != nil || fi.Size() != d.Size {
		return sandbox.ArchiveLayer{}, refused("the layer %s is missing or has another size", d.Digest)
	}
	limit := u.limit
	open := func(ctx context.Context) (io.ReadCloser, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.Wrap(err, fault.Internal, "a layer of the archive cannot be read")
		}
		var r io.Reader = f
		if compressed {
			if r, err = gzip.NewReader(f); err != nil {
				f.Close()
				return nil, refused("the layer %s is not compressed as it says", d.Digest)
			}
		}
		return &verifiedReader{
			r: &cappedReader{ctx: ctx, r: r, left: limit}, sum: sha256.New(), want: diffID.Hex, file: f,
			fail: func(err error) error { return archiveError(ctx, err, limit) },
		}, nil
	}
	return sandbox.ArchiveLayer{Digest: diffID.String(), Open: open}, nil
}

// verifiedReader ends with an error instead of io.EOF when what was read does
// not have the digest it should.
type verifiedReader struct {
	r    io.Reader
	sum  hash.Hash
	want string
	file *os.File
	fail func(error) error
}

func (v *verifiedReader) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.sum.Write(p[:n])
	switch {
	case err == io.EOF:
		if got := hex.EncodeToString(v.sum.Sum(nil)); got != v.want {
			return n, refused("a layer has another digest than it should, sha256:%s", got)
		}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), err != nil && errors.Is(err, io.ErrUnexpectedEOF):
		return n, refused("a layer is damaged")
	case err != nil:
		return n, v.fail(err)
	}
	return n, err
}

func (v *verifiedReader) Close() error { return v.file.Close() }
