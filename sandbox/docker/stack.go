package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	imagetypes "github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// stacked is a saved layer that lies below the private layer of a container.
type stacked struct {
	dir   string
	file  string // the archive for the image …
	saved saved  // … and what it is
	parts *parts // nil without host directories
}

// maxStack bounds how many saved layers a sandbox may stand on. The engine
// has a bound of about 120 itself, and explains it in no words for people.
const maxStack = 100

// stack returns what lies below the private layer of a record's container,
// the topmost first.
func (d *Driver) stack(ctx context.Context, id string, r record) ([]stacked, error) {
	dirs := r.Rootfs.Saved
	if r.Generation > 0 {
		dirs = slices.Concat([]string{d.restored(id, r.Generation)}, dirs)
	}
	if len(dirs) > maxStack {
		return nil, fault.New(fault.Unsupported, "docker stacks at most %d saved layers, and this would be %d", maxStack, len(dirs))
	}
	var stack []stacked
	for _, dir := range dirs {
		s := stacked{dir: dir, file: filepath.Join(dir, layerFile)}
		var err error
		if s.saved, err = readSaved(dir); err != nil {
			return nil, err
		}
		if len(r.Rootfs.HostDirs) > 0 {
			if s.parts, err = d.parts(ctx, dir, r.Rootfs.HostDirs); err != nil {
				return nil, err
			}
			s.file, s.saved = filepath.Join(s.parts.dir, layerFile), s.parts.Rest
		}
		stack = append(stack, s)
	}
	return stack, nil
}

// image returns the name of the image of a record's container, and what it is
// made of beside the layers. It makes it where the engine does not have it.
func (d *Driver) image(ctx context.Context, id string, r record) (string, []stacked, error) {
	stack, err := d.stack(ctx, id, r)
	if err != nil {
		return "", nil, err
	}
	base, err := d.baseImage(ctx, id, r)
	if err != nil || len(stack) == 0 {
		return base, stack, err
	}
	ref := d.stackImage(base, stack)
	labels := map[string]string{labelState: d.state, labelSaved: encodePaths(dirsOf(stack))}
	if r.Rootfs.Digest == "" {
		ref = base + savedSuffix
		labels[labelID] = id
	}
	unlock, err := d.images.lock(ctx, ref)
	if err != nil {
		return "", nil, fault.From(err)
	}
	defer unlock()
	if r.Rootfs.Digest != "" {
		_, err := d.cli.ImageInspect(ctx, ref)
		if err == nil {
			return ref, stack, nil
		}
		if !errdefs.IsNotFound(err) {
			return "", nil, d.engineError(ctx, err, "look for an image")
		}
	}
	return ref, stack, d.loadStack(ctx, ref, base, labels, stack)
}

// stackImage names the image of a stack by all that it is made of.
func (d *Driver) stackImage(base string, stack []stacked) string {
	h := sha256.New()
	fmt.Fprint(h, base)
	for _, s := range stack {
		fmt.Fprintf(h, "\x00%s", s.saved.Digest)
	}
	return savedRepository + ":" + d.state + "-" + hex.EncodeToString(h.Sum(nil))
}

func dirsOf(stack []stacked) []string {
	var dirs []string
	for _, s := range stack {
		dirs = append(dirs, s.dir)
	}
	return dirs
}

// imageConfig is what an image is to an engine.
type imageConfig struct {
	Architecture string         `json:"architecture"`
	Variant      string         `json:"variant,omitempty"`
	OS           string         `json:"os"`
	Config       imageLabels    `json:"config"`
	RootFS       imageRootFS    `json:"rootfs"`
	History      []imageHistory `json:"history"`
}

type imageLabels struct {
	Labels map[string]string `json:"Labels"`
}

type imageRootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type imageHistory struct {
	CreatedBy string `json:"created_by"`
}

// imageEntry is an image in the manifest of an archive of images.
type imageEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// loadStack makes an image of the base and a stack. An engine that keeps
// layers for themselves needs to be sent those only that it does not have;
// another one refuses, and is sent all.
func (d *Driver) loadStack(ctx context.Context, ref, base string, labels map[string]string, stack []stacked) error {
	below, err := d.cli.ImageInspect(ctx, base)
	if err != nil {
		return d.engineError(ctx, err, "look at an image")
	}
	cfg := imageConfig{
		Architecture: below.Architecture, Variant: below.Variant, OS: "linux",
		Config: imageLabels{labels},
		RootFS: imageRootFS{"layers", slices.Clone(below.RootFS.Layers)},
	}
	for _, s := range slices.Backward(stack) {
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, s.saved.Digest)
	}
	for range cfg.RootFS.DiffIDs {
		cfg.History = append(cfg.History, imageHistory{"sandgate"})
	}
	info, err := d.knownInfo(ctx)
	if err != nil {
		return err
	}
	if !containerd(info) {
		err := d.load(ctx, ref, cfg, nil, len(below.RootFS.Layers), stack)
		if err == nil || !fault.Is(err, fault.Internal) {
			return err
		}
		d.log.Info("the engine wants all layers of an image", "image", ref, "error", err)
	}
	all, err := d.saveImage(ctx, base)
	if err != nil {
		return err
	}
	defer all.Close()
	return d.load(ctx, ref, cfg, all, len(below.RootFS.Layers), stack)
}

// load sends an image. Without the lower layers they are only named.
func (d *Driver) load(ctx context.Context, ref string, cfg imageConfig, lower *savedImage, n int, stack []stacked) error {
	if lower != nil && len(lower.layers) != n {
		return fault.Wrap(fmt.Errorf("%d layers instead of %d", len(lower.layers), n), fault.Internal, "the docker engine saved another image than it knows")
	}
	err := d.stream(ctx, "load an image", func(ctx context.Context, w io.Writer) error {
		return writeImage(ctx, w, ref, cfg, lower, n, stack)
	}, func(ctx context.Context, r io.Reader) error {
		progress, err := d.cli.ImageLoad(ctx, r, client.ImageLoadWithQuiet(true))
		if err != nil {
			return err
		}
		defer progress.Close()
		return await(progress)
	})
	if err != nil {
		return err
	}
	made, err := d.cli.ImageInspect(ctx, ref)
	if err == nil && !slices.Equal(made.RootFS.Layers, cfg.RootFS.DiffIDs) {
		err = errors.New("the image has other layers than were sent")
	}
	return d.engineError(ctx, err, "load an image")
}

// writeImage writes an archive of one image.
func writeImage(ctx context.Context, w io.Writer, ref string, cfg imageConfig, lower *savedImage, n int, stack []stacked) error {
	config, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	entry := imageEntry{Config: hex.EncodeToString(sum[:]) + ".json", RepoTags: []string{ref}}
	t := tar.NewWriter(w)
	put := func(name string, size int64, r io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(t, &contextReader{ctx, r})
		return err
	}
	for i := range n {
		name := fmt.Sprintf("%03d/layer.tar", i)
		entry.Layers = append(entry.Layers, name)
		if lower == nil {
			continue
		}
		if err := put(name, lower.layers[i].Size(), io.NewSectionReader(lower.layers[i], 0, lower.layers[i].Size())); err != nil {
			return err
		}
	}
	for i, s := range slices.Backward(stack) {
		name := fmt.Sprintf("%03d/layer.tar", n+len(stack)-1-i)
		entry.Layers = append(entry.Layers, name)
		f, err := os.Open(s.file)
		if err != nil {
			return err
		}
		err = put(name, s.saved.Size, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	manifest, err := json.Marshal([]imageEntry{entry})
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{entry.Config: config, "manifest.json": manifest} {
		if err := put(name, int64(len(b)), bytes.NewReader(b)); err != nil {
			return err
		}
	}
	return t.Close()
}

// removeImagesOf removes the images that a saved layer is part of, unless a
// sandbox stands on them. Those go with the sandbox.
func (d *Driver) removeImagesOf(ctx context.Context, dir string) error {
	list, err := d.ownImages(ctx)
	if err != nil {
		return err
	}
	var used map[string]bool
	for _, i := range list {
		if !slices.Contains(decodePaths(i.Labels[labelSaved]), dir) {
			continue
		}
		if used == nil {
			if used, err = d.usedImages(ctx); err != nil {
				return err
			}
		}
		if used[i.ID] {
			used[i.ParentID] = true
			continue
		}
		if err := d.removeImage(ctx, i.ID); err != nil {
			return err
		}
	}
	return nil
}

// removeUnnamed removes the image of a container that is gone, when it is of
// saved layers and there is no other way to it any more.
func (d *Driver) removeUnnamed(ctx context.Context, image string) error {
	if !strings.HasPrefix(image, "sha256:") {
		return nil
	}
	i, err := d.cli.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return d.engineError(ctx, err, "look at an image")
	}
	if i.Config == nil || i.Config.Labels[labelState] != d.state || i.Config.Labels[labelSaved] == "" {
		return nil
	}
	if len(i.RepoTags) > 0 && !gone(decodePaths(i.Config.Labels[labelSaved])) {
		return nil
	}
	used, err := d.usedImages(ctx)
	if err != nil || used[image] {
		return err
	}
	list, err := d.ownImages(ctx)
	if err != nil || slices.ContainsFunc(list, func(other imagetypes.Summary) bool { return other.ParentID == image }) {
		return err
	}
	return d.removeImage(ctx, image)
}
