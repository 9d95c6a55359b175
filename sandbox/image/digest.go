package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// treeSum is what digestTree finds out about a tree.
type treeSum struct {
	digest string // "sha256:…"
	bytes  int64
	files  int // entries of any kind
}

// capabilityXattr holds the file capabilities of a program: the one extended
// attribute that layers keep.
const capabilityXattr = "security.capability"

// digestTree computes the digest of a tree from one line per entry, in name
// order: path, type and mode, owner, and then the digest of the contents, the
// target of a link or the device number. Times are left out, so that making
// the same thing twice gives the same digest.
func digestTree(ctx context.Context, root string) (treeSum, error) {
	var sum treeSum
	total := sha256.New()
	content := sha256.New()
	buf := make([]byte, 256<<10)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fi, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("stat %s: no owner", path)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		detail, err := entryDetail(path, fi, st, content, buf)
		if err != nil {
			return err
		}
		sum.files++
		if fi.Mode().IsRegular() {
			sum.bytes += fi.Size()
		}
		_, err = fmt.Fprintf(total, "%s %o %d %d %s\n", strconv.Quote(rel), st.Mode, st.Uid, st.Gid, detail)
		return err
	})
	if err != nil {
		return treeSum{}, err
	}
	sum.digest = "sha256:" + hex.EncodeToString(total.Sum(nil))
	return sum, nil
}

func entryDetail(path string, fi fs.FileInfo, st *syscall.Stat_t, content hash.Hash, buf []byte) (string, error) {
	switch {
	case fi.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		content.Reset()
		// The wrapper keeps io.CopyBuffer from looking for other ways than buf.
		if _, err := io.CopyBuffer(content, struct{ io.Reader }{f}, buf); err != nil {
			return "", err
		}
		var capability [64]byte
		n, err := unix.Fgetxattr(int(f.Fd()), capabilityXattr, capability[:])
		if err != nil { // none, or the filesystem knows none
			n = 0
		}
		return fmt.Sprintf("%x %x", content.Sum(nil), capability[:n]), nil
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return strconv.Quote(target), err
	case fi.Mode()&fs.ModeDevice != 0:
		return strconv.FormatUint(st.Rdev, 10), nil
	}
	return "", nil
}
