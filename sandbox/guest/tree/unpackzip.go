package tree

import (
	"archive/zip"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// maxZipDirectory bounds the directory of a zip, which is kept in memory as a
// whole: some 50,000 entries of ordinary names.
const maxZipDirectory = 8 << 20

// zipFile is a zip on disk. While its directory is read, no more than budget
// is: the numbers in a zip that say how long that is may be anything.
type zipFile struct {
	*os.File
	budget int64
}

func (z *zipFile) ReadAt(b []byte, at int64) (int, error) {
	if z.budget -= int64(len(b)); z.budget < 0 {
		return 0, fault.New(fault.Exhausted, "the zip's directory has more than %d bytes; use tar.gz for so many files", maxZipDirectory)
	}
	return z.File.ReadAt(b, at)
}

func (u *unpacker) zip(r io.Reader, scratch func() (*os.File, error)) error {
	f, err := scratch()
	if err != nil {
		return err
	}
	defer f.Close()
	// Packed, there is not much more of it than unpacked.
	most := u.limits.Bytes + freeBytes
	size, err := copyAll(f, &limited{u.ctx, r, most + 1})
	if err == nil && size > most {
		err = fault.New(fault.Exhausted, "the archive has more than %d bytes", most)
	}
	if err != nil {
		return u.explain("", err)
	}
	z := &zipFile{File: f, budget: maxZipDirectory}
	archive, err := zip.NewReader(z, size)
	if err != nil {
		return u.explain("", err)
	}
	z.budget = math.MaxInt64
	for _, file := range archive.File {
		if err := u.admit(file.Name, unpacked(file)); err != nil {
			return err
		}
		if _, err := clean(file.Name); err != nil {
			return err
		}
		if file.Flags&1 != 0 {
			return refused(fault.Invalid, file.Name, "is encrypted")
		}
	}
	if u.bytes > freeBytes && u.bytes-freeBytes > maxRatio*size {
		return errRatio
	}
	u.seen, u.bytes = 0, 0
	for _, file := range archive.File {
		if err := u.zipEntry(file); err != nil {
			return err
		}
	}
	return nil
}

// unpacked is the size that a file says it has.
func unpacked(f *zip.File) int64 {
	if f.UncompressedSize64 > math.MaxInt64 {
		return -1
	}
	return int64(f.UncompressedSize64)
}

func (u *unpacker) zipEntry(f *zip.File) error {
	mode := f.Mode()
	e := entry{name: f.Name, kind: mode.Type(), mode: mode & (fs.ModePerm | fs.ModeSticky), modified: f.Modified, size: unpacked(f)}
	if e.mode.Perm() == 0 { // made where there are no modes
		e.mode |= 0o644
		if e.kind.IsDir() {
			e.mode |= 0o111
		}
	}
	if strings.HasSuffix(f.Name, "/") {
		e.kind = fs.ModeDir
	}
	if e.kind != 0 && e.kind != fs.ModeSymlink {
		return u.unpack(e)
	}
	content, err := f.Open()
	if err != nil {
		return u.explain(f.Name, err)
	}
	defer content.Close()
	e.content = content
	if e.kind == fs.ModeSymlink {
		target, err := io.ReadAll(io.LimitReader(content, wire.MaxPath))
		if err != nil {
			return u.explain(f.Name, err)
		}
		if len(target) == 0 || len(target) >= wire.MaxPath || strings.ContainsRune(string(target), 0) {
			return refused(fault.Invalid, f.Name, "is a link to nothing that can be")
		}
		e.target = string(target)
	}
	return u.unpack(e)
}
