package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// bytesLayer is a layer of these bytes.
func bytesLayer(content []byte) sandbox.ArchiveLayer {
	return sandbox.ArchiveLayer{Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// sampleArchive is a snapshot of two saved layers over a runtime.
func sampleArchive(t testing.TB) (sandbox.Archive, [][]byte) {
	t.Helper()
	parts := [][]byte{tarOf(t, minimalRoot()...), tarOf(t, file("workspace/a", "lower")), tarOf(t, file("workspace/b", "upper"), file("etc/.wh.motd", ""))}
	base := bytesLayer(parts[0])
	return sandbox.Archive{
		Name: "My Tools", Tag: "v1", Description: "what I need", CreatedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Runtime: sandbox.RuntimeRef{ID: BaseID, Name: "base:latest", Tags: []string{"debian"}, Source: "debian bootstrap trixie", Digest: "sha256:" + strings.Repeat("a", 64)},
		Lineage: []string{"snp_aaaaaaaaaaaa", "snp_bbbbbbbbbbbb"},
		Base:    &base, Layers: []sandbox.ArchiveLayer{bytesLayer(parts[2]), bytesLayer(parts[1])},
	}, parts
}

func writeArchive(t testing.TB, a sandbox.Archive) []byte {
	t.Helper()
	var buf bytes.Buffer
	if _, err := new(Catalog).WriteArchive(t.Context(), &buf, a); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func readArchive(t testing.TB, content []byte) (sandbox.Archive, error) {
	t.Helper()
	return new(Catalog).ReadArchive(t.Context(), bytes.NewReader(content), t.TempDir(), 1<<20)
}

func contentOf(t testing.TB, l sandbox.ArchiveLayer) ([]byte, error) {
	t.Helper()
	r, err := l.Open(t.Context())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestArchiveRoundTrip(t *testing.T) {
	a, parts := sampleArchive(t)
	content := writeArchive(t, a)
	if !bytes.Equal(content, writeArchive(t, a)) {
		t.Error("two archives of one snapshot differ")
	}
	got, err := readArchive(t, content)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range append([]sandbox.ArchiveLayer{*got.Base}, got.Layers[1], got.Layers[0]) {
		if b, err := contentOf(t, l); err != nil || !bytes.Equal(b, parts[i]) {
			t.Errorf("layer %d came back as %d bytes, %v", i, len(b), err)
		}
		if sum := sha256.Sum256(parts[i]); l.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("layer %d has the digest %s", i, l.Digest)
		}
	}
	want, have := a, got
	want.Base, want.Layers, have.Base, have.Layers = nil, nil, nil, nil
	if w, h := jsonOf(t, want), jsonOf(t, have); w != h {
		t.Errorf("came back as\n%s\nwant\n%s", h, w)
	}

	a.Base = nil
	got, err = readArchive(t, writeArchive(t, a))
	if err != nil || got.Base != nil || len(got.Layers) != 2 {
		t.Errorf("without its runtime: %+v, %v", got, err)
	}
	a.Layers[0].Digest = "sha256:" + strings.Repeat("b", 64)
	_, err = new(Catalog).WriteArchive(t.Context(), io.Discard, a)
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("a layer that was changed on the disk was exported: %v", err)
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// untar unpacks an archive of ours for other tools.
func untar(t testing.TB, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOthersReadIt: other tools take it for an image, as an OCI layout and as
// what docker load knows.
func TestOthersReadIt(t *testing.T) {
	a, parts := sampleArchive(t)
	content := writeArchive(t, a)
	dir := t.TempDir()
	for name, b := range untar(t, content) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index, validate.Fast); err != nil { // it cannot read layers that are not compressed
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != len(parts) {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for i, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, parts[i]) {
			t.Errorf("layer %d is of %d bytes, %v", i, len(b), err)
		}
		r.Close()
	}
	docker, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(docker, validate.Fast); err != nil {
		t.Error(err)
	}
}

// TestCompressedLayers reads what other tools make of an archive when they
// copy it.
func TestCompressedLayers(t *testing.T) {
	a, parts := sampleArchive(t)
	a.Base = nil
	var zipped bytes.Buffer
	content := repack(t, writeArchive(t, a), func(name string, b []byte, doc map[string]any) ([]byte, map[string]any) {
		if doc == nil && bytes.Equal(b, parts[1]) {
			w := gzip.NewWriter(&zipped)
			w.Write(b)
			w.Close()
			return zipped.Bytes(), nil
		}
		for _, l := range list(doc["layers"]) {
			if l.(map[string]any)["digest"] == digestOf(zipped.Bytes()) {
				l.(map[string]any)["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip"
			}
		}
		return b, doc
	})
	got, err := readArchive(t, content)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := contentOf(t, got.Layers[1]); err != nil || !bytes.Equal(b, parts[1]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func list(v any) []any { l, _ := v.([]any); return l }

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestRuntimeTravels exports the files of a runtime and imports them into
// another catalog, where they have the same digest.
func TestRuntimeTravels(t *testing.T) {
	ref := serveImage(t, nil, tarOf(t, minimalRoot(file("etc/motd", "hello"), hardlink("etc/motd2", "etc/motd"), dir("opt/x"))...))
	from := newCatalog(t, Config{BaseImage: ref})
	rt, rootfs, err := from.Provide(t.Context(), "base", nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime := sandbox.RuntimeRef{ID: rt.ID, Name: rt.Name, Digest: rootfs.Digest}
	to := newCatalog(t, Config{})
	if _, err := to.ProvideDigest(t.Context(), runtime); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("files that are not here: %v", err)
	}
	r, err := from.OpenRuntime(t.Context(), runtime)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := to.ImportRuntime(t.Context(), runtime, r, 1<<20)
	if err != nil || digest != rootfs.Digest {
		t.Fatalf("imported as %s, %v; want %s", digest, err, rootfs.Digest)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	got, err := to.ProvideDigest(t.Context(), runtime)
	if err != nil || got.Digest != rootfs.Digest || len(got.HostDirs) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if b, err := os.ReadFile(filepath.Join(got.Layers[0], "etc/motd2")); err != nil || string(b) != "hello" {
		t.Errorf("a file came as %q, %v", b, err)
	}
	if err := to.Verify(t.Context(), digest); err != nil {
		t.Error(err)
	}
	if rts, _ := to.Runtimes(t.Context()); rts[0].Ready {
		t.Error("what an archive brought has become the runtime of new sandboxes")
	}
	if _, err := to.OpenRuntime(t.Context(), sandbox.RuntimeRef{ID: HostID, Name: "host:latest"}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("this machine's programs were exported: %v", err)
	}
	if _, err := to.ImportRuntime(t.Context(), runtime, bytes.NewReader(tarOf(t, file("../x", ""))), 1<<20); !fault.Is(err, fault.Invalid) {
		t.Errorf("a hostile runtime: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(to.cfg.Dir, buildPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRuntimeStays: what a runtime had is given out under its digest although
// the runtime has other files by now.
func TestRuntimeStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layers")
	c := newCatalog(t, Config{Dir: dir, BaseImage: serveImage(t, nil, tarOf(t, minimalRoot(file("etc/motd", "old"))...))})
	rt, old, err := c.Provide(t.Context(), "base", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "refs", BaseID)); err != nil {
		t.Fatal(err)
	}
	c = newCatalog(t, Config{Dir: dir, BaseImage: serveImage(t, nil, tarOf(t, minimalRoot(file("etc/motd", "new"))...))})
	_, now, err := c.Provide(t.Context(), "base", nil)
	if err != nil || now.Digest == old.Digest {
		t.Fatalf("%s, %v", now.Digest, err)
	}
	got, err := c.ProvideDigest(t.Context(), sandbox.RuntimeRef{ID: rt.ID, Name: rt.Name, Digest: old.Digest})
	if err != nil || got.Layers[0] != old.Layers[0] {
		t.Errorf("%+v, %v", got, err)
	}
	host, rootfs, err := c.Provide(t.Context(), "host", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err = c.ProvideDigest(t.Context(), sandbox.RuntimeRef{ID: host.ID, Name: host.Name, Digest: rootfs.Digest})
	if err != nil || len(got.HostDirs) != len(rootfs.HostDirs) || got.Layers[0] != rootfs.Layers[0] {
		t.Errorf("%+v, %v", got, err)
	}
}
