package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/image"
)

// travelling is a catalog with one more runtime, whose files travel.
type travelling struct {
	*image.Catalog
	runtime sandbox.Runtime
}

func (c travelling) Provide(ctx context.Context, name string, progress func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if name != c.runtime.Name {
		return c.Catalog.Provide(ctx, name, progress)
	}
	rootfs, err := c.ProvideDigest(ctx, sandbox.RuntimeRef{ID: c.runtime.ID, Name: name, Digest: c.runtime.Digest})
	return c.runtime, rootfs, err
}

// catalogOf is a catalog of a machine whose /usr holds a shell. With base it
// has the runtime tiny:1.
func catalogOf(t *testing.T, base bool) travelling {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/sh"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := image.New(image.Config{Dir: filepath.Join(t.TempDir(), "layers"), HostRoot: root, BaseImage: image.NoImage})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out := travelling{Catalog: c, runtime: sandbox.Runtime{ID: "srt_tiny", Name: "tiny:1"}}
	if !base {
		return out
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, h := range []tar.Header{{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "bin/sh", Typeflag: tar.TypeReg, Mode: 0o755}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if out.runtime.Digest, err = c.ImportRuntime(t.Context(), sandbox.RuntimeRef{ID: "srt_tiny"}, &files, 1<<20); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestExportImport carries a snapshot of two layers to another server, with and
// without the files of its runtime.
func TestExportImport(t *testing.T) {
	for _, runtime := range []string{"tiny:1", "host:latest"} {
		t.Run(runtime, func(t *testing.T) {
			images := catalogOf(t, true)
			from := newWorld(t, func(c *sandbox.Config) { c.Images = images })
			s := from.create(alice, sandbox.CreateRequest{Runtime: runtime})
			from.write(alice, s.ID, "a", "one")
			from.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "low"})
			s = from.create(alice, sandbox.CreateRequest{Snapshot: "low"})
			from.write(alice, s.ID, "b", "two")
			p := from.snapshot(alice, s.ID, sandbox.SnapshotRequest{Name: "Tools", Tag: "v1", Description: "d"})
			var archive, again bytes.Buffer
			for _, w := range []*bytes.Buffer{&archive, &again} {
				if err := from.engine.As(alice).ExportSnapshot(t.Context(), "v1", w); err != nil {
					t.Fatalf("%v (%v)", err, fault.From(err).Cause)
				}
			}
			if !bytes.Equal(archive.Bytes(), again.Bytes()) {
				t.Error("two exports differ")
			}
			if l, err := from.store.Layer(t.Context(), p.Layer); err != nil || !strings.HasPrefix(l.Digest, "sha256:") {
				t.Errorf("digest %q, %v", l.Digest, err)
			}

			there := catalogOf(t, false)
			to := newWorld(t, func(c *sandbox.Config) { c.Images = there })
			got, err := to.engine.As(bob).ImportSnapshot(t.Context(), &archive, sandbox.SnapshotRequest{})
			if err != nil {
				t.Fatalf("%v (%v)", err, fault.From(err).Cause)
			}
			if got.Name != "Tools" || got.Tag != "v1" || got.Description != "d" || got.Owner != "bob" || got.Runtime.Name != runtime ||
				got.Files != p.Files || got.SizeBytes != p.SizeBytes || got.SandboxID != "" || got.Parent != "" {
				t.Errorf("%+v", got)
			}
			if runtime == "tiny:1" && got.Runtime.Digest != p.Runtime.Digest {
				t.Errorf("the runtime became %s", got.Runtime.Digest)
			}
			to.consistent(2)
			made := to.create(bob, sandbox.CreateRequest{Snapshot: "v1"})
			if a, b := to.read(bob, made.ID, "a"), to.read(bob, made.ID, "b"); a != "one" || b != "two" {
				t.Errorf("it has %q and %q", a, b)
			}
			if err := to.engine.As(bob).Delete(t.Context(), made.ID); err != nil {
				t.Fatal(err)
			}
			if err := to.engine.As(bob).DeleteSnapshot(t.Context(), got.ID, false); err != nil {
				t.Fatal(err)
			}
			to.consistent(0)
		})
	}
}

// TestImportFails leaves nothing, whatever is wrong and wherever it ends.
func TestImportFails(t *testing.T) {
	images := catalogOf(t, true)
	st := &failingStore{}
	w := newWorld(t, func(c *sandbox.Config) { c.Images = images; st.Store = c.Store; c.Store = st })
	a := w.engine.As(alice)
	s := w.create(alice, sandbox.CreateRequest{Runtime: "tiny:1"})
	w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "low"})
	s = w.create(alice, sandbox.CreateRequest{Snapshot: "low"})
	w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "top"})
	w.consistent(2)
	var archive bytes.Buffer
	if err := a.ExportSnapshot(t.Context(), "top", &archive); err != nil {
		t.Fatal(err)
	}
	full := fault.New(fault.Exhausted, "the disk is full")
	for step, arrange := range map[string]func(){
		"record":       func() { st.err = full },
		"first layer":  func() { w.host.FailNext(fake.Import, full) },
		"second layer": func() { w.host.FailNth(fake.Import, 2, full) },
		"measure":      func() { w.host.FailNext(fake.Export, full) },
	} {
		arrange()
		_, err := a.ImportSnapshot(t.Context(), bytes.NewReader(archive.Bytes()), sandbox.SnapshotRequest{})
		if st.err = nil; !fault.Is(err, fault.Exhausted) {
			t.Errorf("%s: %v", step, err)
		}
		w.consistent(2)
	}
	_, err := a.ImportSnapshot(t.Context(), strings.NewReader("nonsense"), sandbox.SnapshotRequest{})
	wantCode(t, err, fault.Invalid)
	_, err = a.ImportSnapshot(t.Context(), bytes.NewReader(archive.Bytes()[:archive.Len()/2]), sandbox.SnapshotRequest{})
	wantCode(t, err, fault.Invalid)
	_, err = a.ImportSnapshot(t.Context(), &archive, sandbox.SnapshotRequest{Tag: "a b"})
	wantCode(t, err, fault.Invalid)
	w.consistent(2)
	// A server that dies in it leaves its scratch folder to the next one.
	left := filepath.Join(w.dir, "saved", "fake", "import-123")
	if err := os.MkdirAll(filepath.Join(left, "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.consistent(2)
	if err := w.engine.As(alice).ExportSnapshot(t.Context(), "top", writerFunc(func([]byte) (int, error) { return 0, errors.New("the reader is gone") })); err == nil {
		t.Error("an export that nobody reads succeeds")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
