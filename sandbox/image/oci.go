package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	maxImageLayers = 128
	// stallTimeout ends a download that has delivered nothing for this long.
	stallTimeout = 30 * time.Second
)

// errNoAnswer says that a registry cannot be asked at all, as opposed to one
// that answers and does not have the image.
var errNoAnswer = errors.New("no answer")

// imageRegistry pulls images.
type imageRegistry struct {
	transport    *http.Transport
	probeTimeout time.Duration
	stall        time.Duration
}

func newRegistry(probe time.Duration) *imageRegistry {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: probe}).DialContext
	t.TLSHandshakeTimeout = 2 * probe
	t.ResponseHeaderTimeout = stallTimeout
	return &imageRegistry{transport: t, probeTimeout: probe, stall: stallTimeout}
}

func (r *imageRegistry) close() { r.transport.CloseIdleConnections() }

// probe asks which manifest a reference stands for now, within probeTimeout.
func (r *imageRegistry) probe(ctx context.Context, ref name.Reference) (v1.Hash, error) {
	ctx, cancel := context.WithTimeout(ctx, r.probeTimeout)
	defer cancel()
	opts := append(r.options(ctx), remote.WithRetryBackoff(remote.Backoff{Steps: 1, Duration: time.Millisecond}))
	d, err := remote.Get(ref, opts...)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return d.Digest, nil
}

func (r *imageRegistry) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(r.transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent("sandgate"),
	}
}

// pull unpacks an image into the tree of x. Every byte is checked against
// the digest of the manifest that probe returned: the manifest by it, the
// layers by the manifest.
func (r *imageRegistry) pull(ctx context.Context, ref name.Reference, digest v1.Hash, x *extractor, say func(string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	img, err := remote.Image(ref.Context().Digest(digest.String()), r.options(ctx)...)
	if err != nil {
		return fmt.Errorf("get the image: %w", err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("get the manifest: %w", err)
	}
	if n := len(manifest.Layers); n == 0 || n > maxImageLayers {
		return hostile("an image of %d layers", n)
	}
	var total int64
	for _, d := range manifest.Layers {
		// Layers elsewhere would have this process fetch from anywhere.
		if len(d.URLs) > 0 {
			return hostile("a layer that is kept outside of the registry")
		}
		if d.Size < 0 || d.Size > x.bounds.Bytes-total {
			return hostile("layers of more than %d bytes", x.bounds.Bytes)
		}
		total += d.Size
	}
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("list the layers: %w", err)
	}
	for i, l := range layers {
		say(fmt.Sprintf("downloading layer %d of %d (%s)", i+1, len(layers), size(manifest.Layers[i].Size)))
		if err := r.unpack(ctx, cancel, l, x); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return nil
}

func (r *imageRegistry) unpack(ctx context.Context, cancel context.CancelCauseFunc, l v1.Layer, x *extractor) error {
	watch := time.AfterFunc(r.stall, func() {
		cancel(fmt.Errorf("the download stalled for %s", r.stall))
	})
	defer watch.Stop()
	stream, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer stream.Close()
	return x.layer(ctx, &watchedReader{r: stream, watch: watch, limit: r.stall}, true)
}

// watchedReader puts a timer off whenever something has arrived.
type watchedReader struct {
	r     io.Reader
	watch *time.Timer
	limit time.Duration
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.watch.Reset(w.limit)
	}
	return n, err
}

// size writes a number of bytes for a person.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}
