package image

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// serveImage runs a registry with one image of the given layers and returns
// its reference. wrap may spoil the registry's answers.
func serveImage(t *testing.T, wrap func(http.Handler) http.Handler, layers ...[]byte) string {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	good := httptest.NewServer(handler)
	defer good.Close()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, l := range layers {
		layer, err := imageLayer(l)
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	push(t, good, img)
	if wrap == nil {
		wrap = func(h http.Handler) http.Handler { return h }
	}
	s := httptest.NewServer(wrap(handler))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/library/debian:stable-slim"
}

func imageLayer(l []byte) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
}

func push(t *testing.T, s *httptest.Server, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/library/debian:stable-slim")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
}

func TestBaseFromImage(t *testing.T) {
	ref := serveImage(t, nil,
		tarOf(t, minimalRoot(file("etc/hostname", "builder"), file("etc/motd", "old"), dir("opt/old/"), symlink("tmp", "etc"))...),
		tarOf(t, file("etc/.wh.motd", ""), file("opt/.wh..wh..opq", ""), file("opt/new", "x")),
	)
	dir := filepath.Join(t.TempDir(), "layers")
	c := newCatalog(t, Config{Dir: dir, BaseImage: ref})
	if rts, err := c.Runtimes(context.Background()); err != nil || rts[0].ID != BaseID || rts[0].Ready || rts[0].Source != "oci:"+ref+", or debian bootstrap stable" {
		t.Errorf("before: %+v, %v", rts, err)
	}
	var progress progressLog
	rt, rootfs, err := c.Provide(context.Background(), "base:latest", progress.say)
	if err != nil {
		t.Fatal(err)
	}
	if !rt.Ready || rt.Source != "oci:"+ref || rt.Digest != rootfs.Digest || len(rootfs.HostDirs) != 0 {
		t.Errorf("runtime = %+v, rootfs = %+v", rt, rootfs)
	}
	got := tree(t, rootfs.Layers[0])
	for path, want := range map[string]string{
		"bin": "-> usr/bin", "opt/new": "x", "etc/hostname": "", "tmp": "dir", "tmp/.keep": "", "workspace": "dir",
	} {
		if got[path] != want {
			t.Errorf("%s = %q, want %q", path, got[path], want)
		}
	}
	for _, path := range []string{"etc/motd", "opt/old", "etc/.keep"} {
		if _, ok := got[path]; ok {
			t.Errorf("%s is there", path)
		}
	}
	for _, want := range []string{"asking 127.0.0.1:", "downloading layer 2 of 2", "base:latest is ready: oci:"} {
		if !strings.Contains(progress.text(), want) {
			t.Errorf("progress lacks %q:\n%s", want, progress.text())
		}
	}
	layers, err := c.Layers(context.Background())
	if err != nil || len(layers) != 1 || !layers[0].Current || layers[0].Runtime != BaseID || !strings.HasPrefix(layers[0].SourceDigest, "sha256:") || layers[0].Size == 0 {
		t.Errorf("Layers = %+v, %v", layers, err)
	}
	if err := c.Verify(context.Background(), rootfs.Digest); err != nil {
		t.Error(err)
	}

	// The files are there for good: no registry is asked again.
	c = newCatalog(t, Config{Dir: dir})
	if rts, err := c.Runtimes(context.Background()); err != nil || !rts[0].Ready || rts[0].Digest != rootfs.Digest {
		t.Errorf("after a restart: %+v, %v", rts, err)
	}
	if again := provide(t, c, BaseID); again.Digest != rootfs.Digest {
		t.Errorf("after a restart the digest is %s, was %s", again.Digest, rootfs.Digest)
	}
	asNobody(t)
}

func TestBaseImageRefused(t *testing.T) {
	root := tarOf(t, minimalRoot()...)
	// spoil changes the answers for blobs that hold a layer.
	spoil := func(change func(w http.ResponseWriter, body []byte)) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
					h.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				if !bytes.HasPrefix(rec.Body.Bytes(), []byte{0x1f, 0x8b}) { // the config, not a layer
					h.ServeHTTP(w, r)
					return
				}
				change(w, rec.Body.Bytes())
			})
		}
	}
	other := func() []byte {
		l, err := imageLayer(tarOf(t, minimalRoot(file("etc/evil", "x"))...))
		if err != nil {
			t.Fatal(err)
		}
		rc, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}()
	tests := []struct {
		name  string
		wrap  func(http.Handler) http.Handler
		layer []byte
		cfg   Config
		want  string
	}{
		{
			name: "a download that is cut off", layer: root, want: "was cut off",
			wrap: spoil(func(w http.ResponseWriter, body []byte) {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				_, _ = w.Write(body[:len(body)/2])
			}),
		},
		{
			name: "a download that ends early", layer: root, want: "the image from",
			wrap: spoil(func(w http.ResponseWriter, body []byte) { _, _ = w.Write(body[:len(body)/2]) }),
		},
		{
			name: "another layer than promised", layer: root, want: "does not match its digest",
			wrap: spoil(func(w http.ResponseWriter, _ []byte) { _, _ = w.Write(other) }),
		},
		{
			name: "the same files in other bytes", layer: root, want: "does not match its digest",
			wrap: spoil(func(w http.ResponseWriter, body []byte) {
				changed := bytes.Clone(body)
				changed[9] ^= 1 // names the operating system that packed it
				_, _ = w.Write(changed)
			}),
		},
		{
			name: "something behind the layer", layer: root, want: "the image from",
			wrap: spoil(func(w http.ResponseWriter, body []byte) { _, _ = w.Write(append(bytes.Clone(body), other...)) }),
		},
		{name: "an archive that reaches out", layer: tarOf(t, append(minimalRoot(), file("../../escape", "x"))...), want: "was refused because of what is in it"},
		{name: "an archive that is too big", layer: tarOf(t, append(minimalRoot(), file("big", strings.Repeat("x", 200_000)))...), cfg: Config{Bounds: Bounds{Bytes: 100_000}}, want: "was refused because of what is in it"},
		{name: "no archive at all", layer: []byte(strings.Repeat("no tar ", 1000)), want: "the image from"},
		{name: "an image without a shell", layer: tarOf(t, dir("etc")), want: "has no /bin/sh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tt.cfg
			cfg.BaseImage = serveImage(t, tt.wrap, tt.layer)
			c := newCatalog(t, cfg)
			_, _, err := c.Provide(context.Background(), "base", nil)
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "apt-get install mmdebstrap") || !strings.Contains(err.Error(), "--runtime host:latest") {
				t.Errorf("error = %v, want code UNAVAILABLE that says %q and what to do", err, tt.want)
			}
			assertNothingMade(t, c)
		})
	}
	if !t.Failed() {
		asNobody(t)
	}
}

// A registry that takes connections and says nothing costs no more than the
// time it was given.
func TestSilentRegistry(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: the kernel completes the handshake alone
	c := newCatalog(t, Config{BaseImage: l.Addr().String() + "/library/debian:stable", ProbeTimeout: 200 * time.Millisecond})
	began := time.Now()
	_, _, err = c.Provide(context.Background(), "base", nil)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("gave up after %s", took)
	}
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "did not answer for library/debian within 200ms") {
		t.Errorf("error = %v", err)
	}
	assertNothingMade(t, c)
}

// A registry that answers but does not have the image says so.
func TestRegistryWithoutTheImage(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	c := newCatalog(t, Config{BaseImage: strings.TrimPrefix(s.URL, "http://") + "/library/debian:stable"})
	_, _, err := c.Provide(context.Background(), "base", nil)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not give library/debian (HTTP 404)") {
		t.Errorf("error = %v", err)
	}
	assertNothingMade(t, c)
}

// A download that stalls is given up.
func TestStalledDownload(t *testing.T) {
	stalled := make(chan struct{})
	wrap := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-stalled:
				}
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	ref, err := name.ParseReference(serveImage(t, wrap, tarOf(t, minimalRoot()...)))
	if err != nil {
		t.Fatal(err)
	}
	defer close(stalled)
	r := newRegistry(time.Second)
	defer r.close()
	r.stall = 100 * time.Millisecond
	digest, err := r.probe(context.Background(), ref)
	if err != nil {
		t.Fatal(err)
	}
	x, err := newExtractor(t.TempDir(), true, Bounds{}.orDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	err = r.pull(context.Background(), ref, digest, x, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "stalled") {
		t.Errorf("error = %v, want one about a stall", err)
	}
}

// Cancelling a download ends it and leaves nothing.
func TestCancelledDownload(t *testing.T) {
	started := make(chan struct{})
	wrap := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				close(started)
				<-r.Context().Done()
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	c := newCatalog(t, Config{BaseImage: serveImage(t, wrap, tarOf(t, minimalRoot()...))})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	if _, _, err := c.Provide(ctx, "base", nil); !fault.Is(err, fault.Cancelled) {
		t.Errorf("error = %v, want code CANCELLED", err)
	}
	assertNothingMade(t, c)
}
