package docker

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// savedImage is an image as the engine gives it away: in a file without a name,
// with the layers in it, the lowest first.
type savedImage struct {
	file   *os.File
	layers []*io.SectionReader
}

func (s *savedImage) Close() error { return s.file.Close() }

// maxManifest bounds the list of what is in an archive of an image.
const maxManifest = 4 << 20

// saveImage asks the engine for an image.
func (d *Driver) saveImage(ctx context.Context, ref string) (*savedImage, error) {
	f, err := d.passing()
	if err != nil {
		return nil, err
	}
	s := &savedImage{file: f}
	body, err := d.cli.ImageSave(ctx, []string{ref})
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, body, make([]byte, 1<<20))
		body.Close()
	}
	if err != nil {
		f.Close()
		return nil, d.engineError(ctx, err, "save an image")
	}
	if err := s.index(ctx); err != nil {
		f.Close()
		return nil, fault.Wrap(err, fault.Internal, "the docker engine saved an image that cannot be read")
	}
	return s, nil
}

// index finds the layers in the archive. A layer that an image has twice may
// be there once, and a link for the other.
func (s *savedImage) index(ctx context.Context) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	files := make(map[string]*io.SectionReader)
	links := make(map[string]string)
	for t := tar.NewReader(s.file); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		at, err := s.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			files[name] = io.NewSectionReader(s.file, at, h.Size)
		case tar.TypeSymlink:
			links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			links[name] = path.Clean(h.Linkname)
		}
	}
	var list []imageEntry
	manifest := files["manifest.json"]
	if manifest == nil {
		return errors.New("the archive has no manifest")
	}
	if err := json.NewDecoder(io.LimitReader(manifest, maxManifest)).Decode(&list); err != nil {
		return err
	}
	if len(list) != 1 {
		return errors.New("the archive is not of one image")
	}
	for _, name := range list[0].Layers {
		name = path.Clean(name)
		for range 8 { // links to links
			if files[name] == nil && links[name] != "" {
				name = links[name]
			}
		}
		if files[name] == nil {
			return errors.New("the archive lacks a layer of its manifest")
		}
		s.layers = append(s.layers, files[name])
	}
	return nil
}

// plain returns a layer as an archive that is not compressed.
func plain(layer io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(layer, 64<<10)
	if magic, err := b.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil // too short to be compressed is what reading will tell
	}
	return gzip.NewReader(b)
}
