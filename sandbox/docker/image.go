package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Repositories of the images this driver makes. The tag of a layer image is
// the state folder and the digest, that of a single-use image the state folder
// and the sandbox. Saved layers over a layer image have a name of their content
// (stack.go), over a single-use image that of the sandbox and a suffix.
const (
	layerRepository = "sandgate/layer"
	onceRepository  = "sandgate/once"
	savedRepository = "sandgate/saved"
	savedSuffix     = ".saved"
)

var digestPattern = regexp.MustCompile(`\Asha256:[0-9a-f]{64}\z`)

// baseImage returns the name of an image of the layers, importing it where the
// engine does not have it. Imports of one digest wait for each other; when a
// second server imports the same at the same time, the later name wins and
// both are the same.
func (d *Driver) baseImage(ctx context.Context, id string, rec record) (string, error) {
	r := rec.Rootfs
	if r.Digest == "" {
		ref := d.onceImage(id)
		if rec.Generation > 0 { // an earlier one has made it
			if _, err := d.cli.ImageInspect(ctx, ref); err == nil {
				return ref, nil
			}
		}
		return ref, d.importImage(ctx, ref, map[string]string{labelState: d.state, labelID: id}, r.Layers)
	}
	if !digestPattern.MatchString(r.Digest) {
		return "", fault.InvalidField("layer digest", "%.80q is not sha256: and 64 hexadecimal digits", r.Digest)
	}
	ref := d.layerImage(r.Digest)
	unlock, err := d.images.lock(ctx, ref)
	if err != nil {
		return "", fault.From(err)
	}
	defer unlock()
	_, err = d.cli.ImageInspect(ctx, ref)
	if err == nil {
		return ref, nil
	}
	if !errdefs.IsNotFound(err) {
		return "", d.engineError(ctx, err, "look for an image")
	}
	labels := map[string]string{labelState: d.state, labelLayers: encodePaths(r.Layers)}
	return ref, d.importImage(ctx, ref, labels, r.Layers)
}

// encodePaths writes paths so that they survive a LABEL instruction, in which
// dollars and quotes mean something.
func encodePaths(layers []string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(layers, "\x00")))
}

func decodePaths(label string) []string {
	b, err := base64.RawURLEncoding.DecodeString(label)
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

func (d *Driver) layerImage(digest string) string {
	return layerRepository + ":" + d.state + "-" + strings.TrimPrefix(digest, "sha256:")
}

func (d *Driver) onceImage(id string) string { return onceRepository + ":" + d.state + "-" + id }

// importImage streams the merged layers to the engine.
func (d *Driver) importImage(ctx context.Context, ref string, labels map[string]string, layers []string) error {
	return d.stream(ctx, "import an image",
		func(ctx context.Context, w io.Writer) error { return writeTar(ctx, w, layers) },
		func(ctx context.Context, r io.Reader) error { return d.sendImage(ctx, r, ref, labels) })
}

// stream lets the engine read what is written.
func (d *Driver) stream(ctx context.Context, doing string, write func(context.Context, io.Writer) error, send func(context.Context, io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(ctx, pw)
		pw.CloseWithError(err) // the engine drops what it got so far
		wrote <- err
	}()
	err := send(ctx, pr)
	pr.CloseWithError(errors.New("the engine reads no further")) // unblocks the writer
	// Why the writer stopped is the better answer, unless it is because the
	// engine did.
	if werr := <-wrote; werr != nil {
		if f, ok := errors.AsType[*fault.Error](werr); ok {
			return f
		}
		if errors.As(werr, new(*os.PathError)) {
			return fault.Wrap(werr, fault.Invalid, "a layer of the root filesystem cannot be read")
		}
	}
	if err == nil || errors.As(err, new(*fault.Error)) {
		return err
	}
	return d.engineError(ctx, err, doing)
}

func (d *Driver) sendImage(ctx context.Context, tar io.Reader, ref string, labels map[string]string) error {
	var changes []string
	for k, v := range labels {
		changes = append(changes, fmt.Sprintf("LABEL %s=%q", k, v))
	}
	progress, err := d.cli.ImageImport(ctx, client.ImageImportSource{Source: tar, SourceName: "-"}, ref, client.ImageImportOptions{
		Message: "layers of a sandgate sandbox", Changes: changes,
	})
	if err != nil {
		return err
	}
	defer progress.Close()
	return await(progress)
}

// await reads the progress of work to its end. The status was sent before the
// work: how it went is in the body.
func await(progress io.Reader) error {
	for dec := json.NewDecoder(progress); ; {
		var line struct {
			Error string `json:"error"`
		}
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the progress: %w", err)
		}
		if line.Error != "" {
			return errors.New(line.Error)
		}
	}
}

// removeImage forgets an image that only this sandbox used.
func (d *Driver) removeImage(ctx context.Context, ref string) error {
	_, err := d.cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true, Force: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return d.engineError(ctx, err, "remove an image")
	}
	return nil
}
