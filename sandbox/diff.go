package sandbox

import (
	"context"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// maxChanges bounds how long a diff may be.
const maxChanges = 1_000_000

// Diff says how one point differs from another. Points that were made from the
// same files are compared by what was saved over them, others as a whole.
func (a *Actor) Diff(ctx context.Context, from, to Point) ([]Change, error) {
	left, right, done, err := a.sides(ctx, from, to, "Diff")
	if err != nil {
		return nil, err
	}
	defer done()
	hostOnly := left.rootfs.Digest != right.rootfs.Digest || !slices.Equal(left.rootfs.Layers, right.rootfs.Layers)
	if hostOnly {
		if !slices.Equal(left.rootfs.HostDirs, right.rootfs.HostDirs) {
			return nil, fault.New(fault.Unsupported, "host:latest shows this machine's own programs, which are compared with no other runtime; compare points that were made from one runtime").About("diff")
		}
		for _, s := range []*side{left, right} {
			s.stack = append(s.stack, wholeLayers(ctx, s.rootfs)...)
		}
	}
	base, err := openBase(left.rootfs, hostOnly)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	found, err := layer.Diff(ctx, left.stack, right.stack, base)
	if err != nil {
		return nil, err
	}
	if len(found) > maxChanges {
		return nil, fault.New(fault.Exhausted, "more than %d paths differ; compare points that have more in common", maxChanges).About("diff")
	}
	changes := make([]Change, 0, len(found))
	for _, c := range found {
		if c.Why == "owner" && os.Geteuid() != 0 {
			// A plain user's server has no other owners than that user: who
			// owns a file on the host and who inside cannot be compared.
			continue
		}
		changes = append(changes, Change{
			Path: c.Path, Kind: ChangeKind(c.Kind), Type: string(c.Type), Size: c.Size, Mode: c.Mode, Why: c.Why, Mtime: c.ModTime,
		})
	}
	return changes, nil
}

// wholeLayers are the layers of a runtime in the form of saved ones.
func wholeLayers(ctx context.Context, rootfs Rootfs) layer.Stack {
	var s layer.Stack
	for _, dir := range rootfs.Layers {
		s = append(s, layer.Source{ID: dir, Open: func() (io.ReadCloser, error) {
			return stream(ctx, func(ctx context.Context, w io.Writer) error {
				return layer.WriteOverlay(ctx, dir, w, layer.Options{})
			}), nil
		}})
	}
	return s
}

// DiffFile is the unified diff of one text file between two points; empty when
// it is the same in both. Where there is no such file it counts as empty.
func (a *Actor) DiffFile(ctx context.Context, from, to Point, file string) (string, error) {
	if file == "" || len(file) > 4096 || strings.ContainsRune(file, 0) || strings.Contains("/"+file+"/", "/../") {
		return "", fault.InvalidField("path", "%q is not a path", clip(file, 128))
	}
	if !path.IsAbs(file) {
		file = path.Join(Workspace, file)
	}
	left, right, done, err := a.sides(ctx, from, to, "DiffFile")
	if err != nil {
		return "", err
	}
	defer done()
	older, inLeft, err := left.file(ctx, file)
	if err != nil {
		return "", err
	}
	newer, inRight, err := right.file(ctx, file)
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
	return layer.TextDiff(older, newer, names[0], names[1])
}

// side is one side of a diff: layers over the files of a runtime.
type side struct {
	rootfs Rootfs
	stack  layer.Stack
}

// file reads a file; false when there is none.
func (s *side) file(ctx context.Context, p string) ([]byte, bool, error) {
	base, err := openBase(s.rootfs, false)
	if err != nil {
		return nil, false, err
	}
	defer base.Close()
	content, _, err := layer.ReadFile(ctx, s.stack, base, p, layer.MaxText)
	if fault.Is(err, fault.NotFound) {
		return nil, false, nil
	}
	return content, true, err
}
