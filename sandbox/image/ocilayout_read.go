package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// ReadArchive implements sandbox.Archives. The archive is taken apart into the
// scratch folder first, every blob under the digest that it was found to have;
// then it is read from there.
func (c *Catalog) ReadArchive(ctx context.Context, r io.Reader, scratch string, limit int64) (sandbox.Archive, error) {
	u := &unpacker{dir: scratch, left: limit, limit: limit, seen: make(map[string]bool)}
	if err := u.unpack(ctx, r); err != nil {
		return sandbox.Archive{}, archiveError(ctx, err, limit)
	}
	a, err := u.archive()
	if err != nil {
		return sandbox.Archive{}, archiveError(ctx, err, limit)
	}
	return a, nil
}

var errArchiveTooLarge = errors.New("archive too large")

// archiveError turns what went wrong with an archive into a fault.
func archiveError(ctx context.Context, err error, limit int64) error {
	f, isFault := errors.AsType[*fault.Error](err)
	switch {
	case isFault:
		return f
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case errors.Is(err, errArchiveTooLarge):
		return fault.Wrap(err, fault.Exhausted, "this archive cannot be imported: it holds more than %s", size(limit)).About("snapshot")
	case diskFull(err):
		return fault.Wrap(err, fault.Exhausted, "the disk is full: an import needs room for the archive and for what is in it").About("snapshot")
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, errHostile):
		return fault.Wrap(err, fault.Invalid, "this archive cannot be imported: it is damaged or no tar archive").About("snapshot")
	}
	return fault.Wrap(err, fault.Internal, "the archive could not be unpacked; the log has the cause").About("snapshot")
}

// unpacker takes an archive apart.
type unpacker struct {
	dir         string
	left, limit int64
	seen        map[string]bool // names, for each may come once
	blobs       int
}

func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	if err := os.MkdirAll(filepath.Join(u.dir, filepath.FromSlash(blobsPrefix)), 0o700); err != nil {
		return err
	}
	archive := tar.NewReader(&cappedReader{ctx: ctx, r: r, left: u.limit + maxDocument})
	for entries := 0; ; entries++ {
		hdr, err := archive.Next()
		if err == io.EOF && entries > 0 {
			break
		}
		if err != nil {
			return err
		}
		if entries > 2*maxBlobs {
			return refused("it has more than %d entries", 2*maxBlobs)
		}
		if err := u.entry(hdr, archive); err != nil {
			return err
		}
	}
	for _, name := range []string{layoutFile, indexFile} {
		if !u.seen[name] {
			return refused("it has no %s, so it is no OCI image layout", name)
		}
	}
	return nil
}

// entry keeps one file. The names there may be are few and fixed.
func (u *unpacker) entry(hdr *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(hdr.Name, "./")
	switch {
	case hdr.Typeflag == tar.TypeDir && strings.HasPrefix("./"+blobsPrefix, strings.TrimSuffix("./"+name, "/")+"/"), hdr.Typeflag == tar.TypeDir && (name == "" || name == "."):
		return nil
	case hdr.Typeflag != tar.TypeReg:
		return refused("%.100q is no file", hdr.Name)
	case u.seen[name]:
		return refused("%.100q is in it twice", hdr.Name)
	}
	u.seen[name] = true
	switch name {
	case dockerFile, "repositories": // for others
		_, err := io.Copy(io.Discard, content)
		return err
	case layoutFile, indexFile:
		if hdr.Size > maxDocument {
			return refused("%s has more than %d bytes", name, maxDocument)
		}
		_, err := u.keep(name, content)
		return err
	}
	digest, ok := strings.CutPrefix(name, blobsPrefix)
	if !ok || !hexDigest.MatchString(digest) {
		return refused("%.100q is no name of an OCI image layout", hdr.Name)
	}
	if u.blobs++; u.blobs > maxBlobs {
		return refused("it has more than %d blobs", maxBlobs)
	}
	got, err := u.keep(name, content)
	if err != nil {
		return err
	}
	if got != digest {
		return refused("the content of %s has another digest, %s", path.Base(name), got)
	}
	return nil
}

// keep writes a file into the folder and returns the digest of its content.
func (u *unpacker) keep(name string, content io.Reader) (string, error) {
	f, err := os.OpenFile(filepath.Join(u.dir, filepath.FromSlash(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(content, u.left+1))
	if err != nil {
		return "", err
	}
	if u.left -= n; u.left < 0 {
		return "", errArchiveTooLarge
	}
	return hex.EncodeToString(sum.Sum(nil)), f.Close()
}

// cappedReader ends with an error after so many bytes, and with its context.
type cappedReader struct {
	ctx  context.Context
	r    io.Reader
	left int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, fmt.Errorf("%w: more bytes than allowed", errArchiveTooLarge)
	}
	return n, err
}
