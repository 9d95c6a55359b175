package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Layer is one root filesystem kept on this host.
type Layer struct {
	Digest       string    `json:"digest"`  // of the tree: "sha256:…"
	Runtime      string    `json:"runtime"` // id of the runtime it was made for
	Source       string    `json:"source"`  // "oci:docker.io/library/debian:stable-slim", "debian bootstrap trixie", "this host"
	SourceDigest string    `json:"sourceDigest,omitempty"`
	Mirror       string    `json:"mirror,omitempty"`
	Packages     []string  `json:"packages,omitempty"` // asked for on top of the minimum
	Size         int64     `json:"size"`               // bytes of its files
	Files        int       `json:"files"`
	MadeAt       time.Time `json:"madeAt"`

	Path    string   `json:"-"` // of the tree
	Current bool     `json:"-"` // a runtime stands for it
	UsedBy  []string `json:"-"` // sandboxes, when known
}

// reference says which layer a runtime stands for.
type reference struct {
	Digest string `json:"digest"`
	// Fingerprint is that of the host files a skeleton was made from.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Sizes of the files the store reads back are bounded: they are small.
const maxMetaBytes = 1 << 20

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// hexOf returns the directory name of a digest, which must be well-formed.
func hexOf(digest string) (string, bool) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	return hex, ok && hexDigest.MatchString(hex)
}

// layer reads the layer of a digest; fs.ErrNotExist when there is none.
func (s *layerStore) layer(digest string) (Layer, error) {
	hex, ok := hexOf(digest)
	if !ok {
		return Layer{}, fmt.Errorf("digest %q: %w", digest, fs.ErrNotExist)
	}
	var l Layer
	dir := filepath.Join(s.dir, hex)
	if err := readJSON(filepath.Join(dir, "meta.json"), &l); err != nil {
		return Layer{}, err
	}
	l.Digest, l.Path = digest, filepath.Join(dir, "root")
	if !isRealDir(l.Path) {
		return Layer{}, fmt.Errorf("layer %s: %w", digest, fs.ErrNotExist)
	}
	return l, nil
}

// Layers lists the layers on this host in digest order, with the sandboxes
// that use each where Config.InUse can tell.
func (c *Catalog) Layers(ctx context.Context) ([]Layer, error) {
	users, err := c.users(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the layers in %s cannot be read", c.cfg.Dir)
	}
	current := c.layers.currentDigests()
	c.mu.Lock()
	current = append(current, c.skeleton.Digest) // may not be on record yet
	c.mu.Unlock()
	var out []Layer
	for _, e := range entries {
		if !hexDigest.MatchString(e.Name()) {
			continue
		}
		l, err := c.layers.layer("sha256:" + e.Name())
		if err != nil {
			// Only a rename puts a layer here, so this one was damaged from
			// outside; it is listed so that it can be removed.
			l = Layer{Digest: "sha256:" + e.Name(), Source: "damaged", Path: filepath.Join(c.cfg.Dir, e.Name(), "root")}
		}
		l.UsedBy = users[l.Digest]
		l.Current = slices.Contains(current, l.Digest)
		out = append(out, l)
	}
	return out, nil
}

func (c *Catalog) users(ctx context.Context) (map[string][]string, error) {
	if c.cfg.InUse == nil {
		return nil, nil
	}
	users, err := c.cfg.InUse(ctx)
	if err != nil {
		return nil, fault.From(err)
	}
	return users, nil
}

// Remove deletes a layer. Codes: NotFound; Busy while a sandbox uses it or one
// may be about to, because the layer was handed out a moment ago; State when
// nothing can tell whether it is used.
func (c *Catalog) Remove(ctx context.Context, digest string) error {
	hex, ok := hexOf(digest)
	if !ok || !exists(filepath.Join(c.cfg.Dir, hex)) {
		return noLayer(digest)
	}
	if c.cfg.InUse == nil {
		return fault.New(fault.State, "layer %s may be in use; remove it through the server", digest).About("layer")
	}
	return c.layers.remove(hex, func() error {
		users, err := c.users(ctx)
		if err != nil {
			return err
		}
		if u := users[digest]; len(u) > 0 {
			return fault.New(fault.Busy, "layer %s is used by %s; delete what uses it first", digest, someOf(u)).About("layer")
		}
		return nil
	})
}

// Verify reads a whole layer and compares it with its digest. Codes: NotFound;
// State when it was changed.
func (c *Catalog) Verify(ctx context.Context, digest string) error {
	l, err := c.layers.layer(digest)
	if err != nil {
		return noLayer(digest)
	}
	sum, err := digestTree(ctx, l.Path)
	if err != nil {
		if ctx.Err() != nil {
			return fault.From(ctx.Err())
		}
		return fault.Wrap(err, fault.State, "layer %s cannot be read completely; remove it and it will be made again", digest).About("layer")
	}
	if sum.digest != l.Digest {
		return fault.New(fault.State, "layer %s was changed on disk (it is now %s); remove it and it will be made again", digest, sum.digest).About("layer")
	}
	return nil
}

// someOf names the first few of a list.
func someOf(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func noLayer(digest string) error {
	if len(digest) > 80 {
		digest = digest[:80] + "…"
	}
	return fault.New(fault.NotFound, "there is no layer %q on this host", digest).About("layer")
}

func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxMetaBytes {
		return errors.New("not a record of a layer")
	}
	return json.NewDecoder(f).Decode(into)
}
