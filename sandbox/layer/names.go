package layer

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// cleanName turns a name of an archive into a path of the layer.
func cleanName(name string) (string, error) {
	if len(name) > maxPath {
		return "", refuse(name, "has a name of %d bytes, more than %d", len(name), maxPath)
	}
	if strings.ContainsRune(name, 0) {
		return "", refuse(name, "has a NUL in its name")
	}
	if strings.HasPrefix(name, "/") {
		return "", refuse(name, "has an absolute name")
	}
	if name == "" {
		return "", refuse(name, "has no name")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", refuse(name, "climbs with ..")
		case len(part) > maxName:
			return "", refuse(name, "has a part of %d bytes in its name, more than %d", len(part), maxName)
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > maxDepth {
		return "", refuse(name, "is more than %d directories deep", maxDepth)
	}
	return path.Join("/", name), nil
}

// mark is what a name of an OCI layer stands for.
type mark int

const (
	noMark mark = iota
	deletion
	opacity
)

// marked reads the marks of OCI layers: it returns the path that is meant.
func marked(p string) (string, mark, error) {
	dir, base := path.Split(p)
	for part := range strings.SplitSeq(dir, "/") {
		if strings.HasPrefix(part, whiteoutPrefix) {
			return "", noMark, refuse(p, "is in a directory whose name is a mark of deletion")
		}
	}
	if !strings.HasPrefix(base, whiteoutPrefix) {
		return p, noMark, nil
	}
	if base == opaqueMarker {
		return path.Clean(dir), opacity, nil
	}
	switch name := base[len(whiteoutPrefix):]; {
	case name == "", name == ".", name == "..", strings.HasPrefix(name, whiteoutPrefix):
		return "", noMark, refuse(p, "is no mark of deletion that is known")
	default:
		return path.Join(dir, name), deletion, nil
	}
}

// tarName is the name of a path in the neutral form.
func tarName(p string, dir bool) string {
	switch {
	case p == "/":
		return "./"
	case dir:
		return p[1:] + "/"
	}
	return p[1:]
}

// deletionName is the name of the mark that a path is deleted.
func deletionName(p string) string {
	dir, base := path.Split(p)
	return (dir + whiteoutPrefix + base)[1:]
}

// opaqueName is the name of the mark that a directory is opaque.
func opaqueName(dir string) string { return path.Join(dir, opaqueMarker)[1:] }

// canCarry refuses a path that the neutral form cannot name.
func canCarry(p string) error {
	if base := path.Base(p); strings.HasPrefix(base, whiteoutPrefix) {
		return refuse(p, "has a name that stands for a deletion in a layer; rename it")
	}
	if len(p) > maxPath {
		return refuse(p, "has a name of %d bytes, more than %d", len(p), maxPath)
	}
	return nil
}

// deepestFirst sorts paths so that what lies in a directory comes before it.
func deepestFirst[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return strings.Compare(b, a) })
}
