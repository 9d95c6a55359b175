// Package program puts the guest program on the host's disk, where drivers
// find it.
//
// Programs are content-addressed, DIR/<sha256>/guest, and never change in
// place: a sandbox keeps using the one it was started with, and a memory
// checkpoint can only be restored with the very bytes it was taken with. So an
// upgrade adds a program, and [Keep] removes those that nothing uses any more.
package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest/embedded"
)

const (
	fileName = "guest"
	// selfName remembers the digest of the running executable, which is too
	// large to be hashed at every start.
	selfName = "self.json"
	selfPath = "/proc/self/exe"
	// unfinished is how old a temporary file is that a crash has left.
	unfinished = time.Hour
)

// Install makes sure that the guest program is in dir and returns its path and
// its digest, the hexadecimal SHA-256 of its content. It is the embedded guest
// or, in a binary that has none, a copy of the running executable, which must
// then act as the guest when it is called by that name.
//
// Installing what is there already does next to nothing.
func Install(dir string) (path, digest string, err error) {
	if b := embedded.Binary(); b != nil {
		sum := sha256.Sum256(b)
		digest = hex.EncodeToString(sum[:])
		path, err = place(dir, digest, bytes.NewReader(b))
		return path, digest, err
	}
	return installSelf(dir)
}

// installSelf installs the running executable. A link would not do: whoever
// builds or upgrades the binary may write to the very file.
func installSelf(dir string) (path, digest string, err error) {
	exe, err := os.Open(selfPath)
	if err != nil {
		return "", "", fmt.Errorf("open the running executable: %w", err)
	}
	defer exe.Close()
	id, err := identify(exe)
	if err != nil {
		return "", "", fmt.Errorf("inspect the running executable: %w", err)
	}
	if known, ok := remembered(dir, id); ok {
		if path := filepath.Join(dir, known, fileName); present(path, id.Size) {
			return path, known, nil
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, exe); err != nil {
		return "", "", fmt.Errorf("read the running executable: %w", err)
	}
	digest = hex.EncodeToString(h.Sum(nil))
	if _, err := exe.Seek(0, io.SeekStart); err != nil {
		return "", "", fmt.Errorf("read the running executable: %w", err)
	}
	if path, err = place(dir, digest, exe); err != nil {
		return "", "", err
	}
	id.Digest = digest
	if b, err := json.Marshal(id); err == nil {
		// Without the note the next start hashes again, no more.
		_ = writeAtomic(filepath.Join(dir, selfName), 0o644, bytes.NewReader(b))
	}
	return path, digest, nil
}

// place writes a program unless it is there.
func place(dir, digest string, content io.ReadSeeker) (string, error) {
	path := filepath.Join(dir, digest, fileName)
	size, err := content.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = content.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", fmt.Errorf("install the guest: %w", err)
	}
	if present(path, size) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("install the guest: %w", err)
	}
	// Sandboxes see it as users who are not us, whatever our umask is.
	for _, d := range []string{dir, filepath.Dir(path)} {
		if err := os.Chmod(d, 0o755); err != nil {
			return "", fmt.Errorf("install the guest: %w", err)
		}
	}
	if err := writeAtomic(path, 0o555, content); err != nil {
		return "", fmt.Errorf("install the guest: %w", err)
	}
	return path, nil
}

// present reports whether a whole program is at path. Files appear by rename
// when they are on disk, so the right size is enough.
func present(path string, size int64) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode() == 0o555 && info.Size() == size
}

// writeAtomic makes a file appear whole and durably.
func writeAtomic(path string, perm fs.FileMode, content io.Reader) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// identity tells one state of an executable file from another.
type identity struct {
	Device, Inode uint64
	Size          int64
	Changed       int64 // ctime, ns
	Digest        string
}

func identify(f *os.File) (identity, error) {
	info, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, errors.ErrUnsupported
	}
	return identity{Device: st.Dev, Inode: st.Ino, Size: st.Size, Changed: st.Ctim.Nano()}, nil
}

// remembered returns the digest noted for the executable.
func remembered(dir string, id identity) (string, bool) {
	b, err := os.ReadFile(filepath.Join(dir, selfName))
	if err != nil {
		return "", false
	}
	var noted identity
	if json.Unmarshal(b, &noted) != nil || !isDigest(noted.Digest) {
		return "", false
	}
	digest := noted.Digest
	noted.Digest = ""
	return digest, noted == id
}

// Keep removes the programs in dir whose digests are not listed, and what an
// interrupted Install has left. The caller lists the one it has installed, and
// those of all sandboxes and checkpoints.
func Keep(dir string, digests []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the guest programs: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case entry.IsDir() && isDigest(entry.Name()) && !slices.Contains(digests, entry.Name()):
			problems = append(problems, os.RemoveAll(path))
		case strings.HasPrefix(entry.Name(), ".new-"):
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > unfinished {
				problems = append(problems, os.Remove(path))
			}
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("remove unused guest programs: %w", err)
	}
	return nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}
