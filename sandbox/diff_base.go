package sandbox

import (
	"io"
	"path"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// baseFiles are the files of a runtime, read where they lie on this host: its
// layers, and the host directories shown in it.
type baseFiles struct {
	layers *layer.Directories
	shown  []shownDir
}

// shownDir is one host directory at its place.
type shownDir struct {
	target string
	files  *layer.Directories
}

var _ layer.Base = (*baseFiles)(nil)

// openBase opens the files of a runtime, without those of its layers when
// hostOnly is set.
func openBase(rootfs Rootfs, hostOnly bool) (*baseFiles, error) {
	b := &baseFiles{}
	var err error
	var dirs []string
	if !hostOnly {
		dirs = rootfs.Layers
	}
	if b.layers, err = layer.OpenDirectories(dirs...); err != nil {
		return nil, err
	}
	for _, d := range rootfs.HostDirs {
		files, err := layer.OpenDirectories(d.Source)
		if err != nil {
			b.Close()
			return nil, err
		}
		b.shown = append(b.shown, shownDir{d.Target, files})
	}
	return b, nil
}

// Close closes what was opened.
func (b *baseFiles) Close() {
	b.layers.Close()
	for _, s := range b.shown {
		s.files.Close()
	}
}

// at is where a path lies: in the innermost directory that is shown there, of
// two the later one, or in the layers.
func (b *baseFiles) at(p string) (*layer.Directories, string) {
	best, rest := -1, p
	for i, s := range b.shown {
		if p != s.target && !strings.HasPrefix(p, s.target+"/") {
			continue
		}
		if best < 0 || len(s.target) >= len(b.shown[best].target) {
			best, rest = i, path.Join("/", strings.TrimPrefix(p, s.target))
		}
	}
	if best < 0 {
		return b.layers, p
	}
	return b.shown[best].files, rest
}

// Entry implements layer.Base.
func (b *baseFiles) Entry(p string) (layer.Entry, bool, error) {
	files, rest := b.at(p)
	e, ok, err := files.Entry(rest)
	if e.Path = p; err != nil || ok {
		return e, ok, err
	}
	for _, s := range b.shown { // what leads to a target need not be in the layers
		if strings.HasPrefix(s.target, strings.TrimSuffix(p, "/")+"/") {
			return layer.Entry{Path: p, Type: layer.Dir, Mode: 0o755}, true, nil
		}
	}
	return e, false, nil
}

// Names implements layer.Base.
func (b *baseFiles) Names(p string) ([]string, error) {
	files, rest := b.at(p)
	names, err := files.Names(rest)
	if err != nil {
		return nil, err
	}
	for _, s := range b.shown {
		below, ok := strings.CutPrefix(s.target, strings.TrimSuffix(p, "/")+"/")
		if name, _, _ := strings.Cut(below, "/"); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Open implements layer.Base.
func (b *baseFiles) Open(p string) (io.ReadCloser, error) {
	files, rest := b.at(p)
	return files.Open(rest)
}
