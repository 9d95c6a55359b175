package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// maxDiffFile bounds the files whose text is compared.
const maxDiffFile = 4 << 20

// DiffFile is the unified diff of one text file between two points; empty when
// it is the same in both. In a point where there is no such file it is empty.
func (a *Actor) DiffFile(ctx context.Context, from, to Point, file string) (string, error) {
	if file == "" || len(file) > 4096 || strings.ContainsRune(file, 0) || strings.Contains("/"+file+"/", "/../") {
		return "", fault.InvalidField("path", "%q is not a path", clip(file, 128))
	}
	if !path.IsAbs(file) {
		file = path.Join(Workspace, file)
	}
	file = path.Clean(file)
	left, right, done, err := a.views(ctx, from, to)
	if err != nil {
		return "", err
	}
	defer done()
	older, inLeft, err := a.e.text(ctx, left, file)
	if err != nil {
		return "", err
	}
	newer, inRight, err := a.e.text(ctx, right, file)
	if err != nil {
		return "", err
	}
	names := []string{from.String() + ":" + file, to.String() + ":" + file}
	switch {
	case !inLeft && !inRight:
		return "", fault.New(fault.NotFound, "no file %q on either side", clip(file, 128)).About("file")
	case !inLeft:
		names[0] = "/dev/null"
	case !inRight:
		names[1] = "/dev/null"
	}
	return string(diff.Diff(names[0], older, names[1], newer)), nil
}

// text reads a text file of a view.
func (e *Engine) text(ctx context.Context, v *view, file string) (content []byte, there bool, err error) {
	f, ok, err := v.lookup(file)
	if err != nil || !ok {
		return nil, false, err
	}
	switch {
	case f.Type != layer.File:
		return nil, true, fault.New(fault.Invalid, "%q is no regular file", clip(file, 128)).About("file")
	case f.Size > maxDiffFile:
		return nil, true, fault.New(fault.Exhausted, "%q has %s; files of up to %s are compared", clip(file, 128), FormatBytes(f.Size), FormatBytes(maxDiffFile)).About("file")
	case f.host != "":
		content, err = v.base.read(f.host)
	default:
		name := file
		if f.Same != "" {
			name = f.Same
		}
		err = e.readLayer(ctx, f.layer.id, func(h *tar.Header, r io.Reader) error {
			if path.Clean("/"+h.Name) != name || h.Typeflag != tar.TypeReg {
				return nil
			}
			if content, err = io.ReadAll(io.LimitReader(r, maxDiffFile)); err != nil {
				return err
			}
			return errEnough
		})
	}
	if err == nil && (bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content)) {
		err = fault.New(fault.Invalid, "%q is no text", clip(file, 128)).About("file")
	}
	return content, true, err
}

// read reads a file of the base.
func (b *baseFiles) read(host string) ([]byte, error) {
	f, err := b.open(host)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxDiffFile))
	if err != nil {
		return nil, baseError(err)
	}
	return content, nil
}
