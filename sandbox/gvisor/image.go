package gvisor

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// imageFiles are the parts of a memory image, in the order in which gVisor
// wants them.
var imageFiles = []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName}

// image says of a memory image what it fits. It is written when the rest is
// complete and durable, and removed before anything of the sandbox changes: an
// image is there if and only if this file is.
type image struct {
	// Build is the gVisor that made it; another one may lay out its memory in
	// another way and not notice.
	Build string `json:"build"`
	// CPU is the kind of processor, whose features programs have looked up.
	CPU string `json:"cpu"`
	// Guest is the digest of PID 1's program, of which the image holds data
	// and not the code.
	Guest string `json:"guest"`
	// Parts are the sizes and checksums of the files.
	Parts []part `json:"parts"`
}

type part struct {
	Size int64  `json:"size"`
	Sum  uint32 `json:"sum"`
}

func (b box) hasImage() bool {
	_, err := os.Lstat(b.imageRecord())
	return err == nil
}

// createImage makes the empty files of an image.
func (b box) createImage() ([]*os.File, error) {
	if err := b.discardImage(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(b.image(), 0o700); err != nil {
		return nil, err
	}
	var files []*os.File
	for _, name := range imageFiles {
		f, err := os.OpenFile(filepath.Join(b.image(), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// completeImage makes the image in the files durable and then valid.
func (b box) completeImage(files []*os.File, img image) error {
	synced := make(chan error, len(files))
	for _, f := range files {
		go func() { synced <- f.Sync() }()
	}
	var errs []error
	for _, f := range files {
		p, err := measure(f)
		img.Parts = append(img.Parts, p)
		errs = append(errs, err)
	}
	for range files {
		errs = append(errs, <-synced)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the memory image: %w", err)
	}
	if err := writeJSON(b.imageRecord(), &img, true); err != nil {
		return fmt.Errorf("write the memory image: %w", err)
	}
	return errors.Join(syncDir(b.image()), syncDir(b.dir))
}

// checkImage says why an image cannot be resumed from, if so.
func (b box) checkImage(now image) (reason string) {
	const damaged = "its memory image is damaged"
	var was image
	err := readJSON(b.imageRecord(), &was)
	switch {
	case err != nil:
		return damaged
	case was.Build != now.Build:
		return "its memory image was made by another build of gVisor"
	case was.CPU != now.CPU:
		return "its memory image was made on another kind of processor"
	case was.Guest != now.Guest:
		return "its memory image was made with another guest program"
	case len(was.Parts) != len(imageFiles):
		return damaged
	}
	for i, name := range imageFiles {
		f, err := os.Open(filepath.Join(b.image(), name))
		if err != nil {
			return damaged
		}
		p, err := measure(f)
		f.Close()
		if err != nil || p != was.Parts[i] {
			return damaged
		}
	}
	return ""
}

// useImage uses an image up. Afterwards the files are there and nobody will
// ever use them again: once a process of the sandbox has run, they belong to a
// past of its file system.
func (b box) useImage() error {
	if err := os.Remove(b.imageRecord()); err != nil {
		return err
	}
	return syncDir(b.image())
}

// discardImage removes an image, its validity first.
func (b box) discardImage() error {
	err := os.Remove(b.imageRecord())
	switch {
	case err == nil:
		if err := syncDir(b.image()); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.RemoveAll(b.image())
}

// measure reads a file to its end.
func measure(f *os.File) (part, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return part{}, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return part{Size: n, Sum: sum.Sum32()}, err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// imageOf says what an image would fit that was made of a sandbox now, by the
// build given.
func imageOf(build string, guest driver.Guest) (image, error) {
	f, err := os.Open(guest.Path)
	if err != nil {
		return image{}, fmt.Errorf("open the guest program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return image{}, fmt.Errorf("read the guest program: %w", err)
	}
	return image{Build: build, CPU: cpuKind(), Guest: "sha256:" + hex.EncodeToString(sum.Sum(nil))}, nil
}

// build names the gVisor in this program.
func build() string { return version() + " " + runtime.Version() + " " + runtime.GOARCH }

// cpuKind names the kind of processor this host has and its features.
func cpuKind() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan() && s.Text() != ""; {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features":
			lines = append(lines, strings.TrimSpace(value))
		}
	}
	return strings.Join(lines, "; ")
}
