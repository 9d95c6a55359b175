package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
)

// Bounds limit what an archive may unpack to.
type Bounds struct {
	Bytes   int64 // of the archive, unpacked
	Entries int
}

func (b Bounds) orDefaults() Bounds {
	orDefault(&b.Bytes, 16<<30)
	orDefault(&b.Entries, 500_000)
	return b
}

const (
	maxPath = 4095 // PATH_MAX without its NUL
	maxName = 255
	// maxDepth keeps walks of a tree, which cost more the deeper it is, cheap.
	maxDepth = 128

	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
)

// errHostile is wrapped by every refusal of an archive because of what is in it.
var errHostile = errors.New("refused archive")

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errHostile, fmt.Sprintf(format, args...))
}

// extractor unpacks tar streams into one tree that nobody else writes to. An
// entry never gets outside of the tree: names with ".." are refused, absolute
// names and links are taken as relative to the tree, the way a chroot would,
// and every file is reached through os.Root, which refuses to leave the tree
// even if the extractor's own reasoning were wrong.
//
// Device nodes, FIFOs and sockets are left out: /dev is the driver's, and in an
// overlay some device numbers have a meaning of their own. Of the extended
// attributes only file capabilities are kept, for the same reason.
type extractor struct {
	root         *os.Root
	unprivileged bool
	bounds       Bounds
	bytes        int64 // of the streams
	written      int64 // of the files
	entries      int
	buf          []byte

	dirs    map[string]string   // resolved directories: path as named → real path
	made    map[string]struct{} // what the present layer has made, by real path
	open    *os.Root            // the directory last worked in …
	openDir string              // … and its real path
}

func newExtractor(root string, unprivileged bool, bounds Bounds) (*extractor, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	return &extractor{
		root: r, unprivileged: unprivileged, bounds: bounds, buf: make([]byte, 256<<10),
		dirs: make(map[string]string),
	}, nil
}

func (x *extractor) close() {
	x.closeDir()
	x.root.Close()
}

// layer unpacks one tar stream over what is there and reads it to its very
// end, so that a digest over the stream is checked. whiteouts says whether the
// stream follows the rules of OCI layers.
func (x *extractor) layer(ctx context.Context, r io.Reader, whiteouts bool) error {
	x.made = make(map[string]struct{})
	limited := &boundedReader{r: r, x: x}
	archive := tar.NewReader(limited)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		hdr, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if x.entries++; x.entries > x.bounds.Entries {
			return hostile("more than %d entries", x.bounds.Entries)
		}
		if err := x.entry(hdr, archive, whiteouts); err != nil {
			return fmt.Errorf("unpack %.200q: %w", hdr.Name, err)
		}
	}
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{limited}, x.buf); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return nil
}

// boundedReader counts what is read for all layers of an extractor together.
type boundedReader struct {
	r io.Reader
	x *extractor
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.x.bytes += int64(n); b.x.bytes > b.x.bounds.Bytes {
		return 0, hostile("more than %d bytes", b.x.bounds.Bytes)
	}
	return n, err
}

// entry unpacks one entry.
func (x *extractor) entry(hdr *tar.Header, content io.Reader, whiteouts bool) error {
	name, err := entryName(hdr.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil // the root of the tree is ours
	}
	parent, err := x.resolve(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if whiteouts && strings.HasPrefix(base, whiteoutPrefix) {
		return x.whiteout(parent, base)
	}
	switch hdr.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeGNUSparse, tar.TypeSymlink, tar.TypeLink:
	default:
		return nil
	}
	if hdr.Uid < 0 || hdr.Gid < 0 || hdr.Uid > math.MaxInt32 || hdr.Gid > math.MaxInt32 {
		return hostile("owner %d:%d", hdr.Uid, hdr.Gid)
	}
	dir, err := x.enter(parent)
	if err != nil {
		return err
	}
	full := path.Join(parent, base)
	kept, err := x.makeWay(dir, full, base, hdr.Typeflag)
	if err != nil {
		return err
	}
	x.made[full] = struct{}{}
	switch hdr.Typeflag {
	case tar.TypeDir:
		if !kept {
			if err := dir.Mkdir(base, 0o700); err != nil {
				return err
			}
		}
		return x.own(dir, base, hdr)
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.file(dir, base, hdr, content)
	case tar.TypeSymlink:
		if hdr.Linkname == "" || len(hdr.Linkname) > maxPath {
			return hostile("a symbolic link with a target of %d bytes", len(hdr.Linkname))
		}
		if err := dir.Symlink(hdr.Linkname, base); err != nil {
			return err
		}
		if x.unprivileged {
			return nil
		}
		return dir.Lchown(base, hdr.Uid, hdr.Gid)
	}
	return x.hardlink(full, hdr.Linkname)
}

// entryName checks a name of an archive and returns it relative to the tree.
func entryName(name string) (string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", hostile("a name of %d bytes", len(name))
	}
	if strings.Count(name, "/") > maxDepth {
		return "", hostile("more than %d nested directories", maxDepth)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", hostile("a name with ..")
		}
		if len(part) > maxName {
			return "", hostile("a name of %d bytes", len(part))
		}
	}
	return path.Join(".", strings.TrimLeft(name, "/")), nil
}

// makeWay removes what is in the way of an entry. It reports whether a
// directory stays because the entry is one too.
func (x *extractor) makeWay(dir *os.Root, full, base string, typeflag byte) (kept bool, err error) {
	fi, err := dir.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if fi.IsDir() && typeflag == tar.TypeDir {
		return true, nil
	}
	return false, x.remove(dir, full, base, fi)
}

func (x *extractor) remove(dir *os.Root, full, base string, fi fs.FileInfo) error {
	if fi.IsDir() || fi.Mode()&fs.ModeSymlink != 0 {
		clear(x.dirs) // paths may have been resolved through it
		if x.openDir == full || strings.HasPrefix(x.openDir, full+"/") {
			x.closeDir()
		}
	}
	return dir.RemoveAll(base)
}
