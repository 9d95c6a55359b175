package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/moby/moby/api/types/system"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// A saved layer is a directory with two files: the layer as an archive in the
// neutral form of package layer, and a note, written last, without which it is
// none. What is derived from them lies beside (parts.go) and in the engine
// (stack.go), and can be made anew.
const (
	layerFile = "layer.tar"
	noteFile  = "saved.json"
)

// saved is the note of a saved layer.
type saved struct {
	Format int    `json:"format"`
	Digest string `json:"digest"` // of the archive
	Size   int64  `json:"size"`   // of the archive
}

const savedFormat = 1

// guestDir is where the engine mounts the guest.
var guestDir = path.Dir(driver.GuestPath)

// ours reports whether a path inside of a sandbox is none of its own: the
// driver shows the guest there, or the engine says that this is a container.
func ours(p string) bool { return p == guestDir || p == "/.dockerenv" }

// readSaved returns the note of a saved layer.
func readSaved(dir string) (saved, error) {
	var s saved
	none := func(err error) error {
		return fault.Wrap(err, fault.Invalid, "%s holds no saved layer of docker", filepath.Base(dir)).About("layer")
	}
	b, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err != nil {
		return s, none(err)
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Format != savedFormat || !digestPattern.MatchString(s.Digest) {
		return s, none(errors.Join(err, errors.New("the note is of no known format")))
	}
	if info, err := os.Stat(filepath.Join(dir, layerFile)); err != nil || info.Size() != s.Size {
		return s, none(errors.Join(err, errors.New("the archive is not that of the note")))
	}
	return s, nil
}

// fillSaved makes a saved layer of what write writes, in dir, which is made
// for it. It is complete and durable, or nothing is left.
func fillSaved(dir string, write func(*os.File) error) (saved, error) {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return saved{}, fault.New(fault.Exists, "there is a saved layer %s already", filepath.Base(dir)).About("layer")
	}
	if err != nil {
		return saved{}, diskFault(err, "the saved layer cannot be written")
	}
	s, err := fillFiles(dir, write)
	if err != nil {
		f := diskFault(err, "the saved layer cannot be written")
		if left := os.RemoveAll(dir); left != nil {
			f = fault.Wrap(errors.Join(f, left), fault.CodeOf(f), "%s", f.Error())
		}
		return saved{}, f
	}
	return s, nil
}

func fillFiles(dir string, write func(*os.File) error) (saved, error) {
	s := saved{Format: savedFormat}
	f, err := os.OpenFile(filepath.Join(dir, layerFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return s, err
	}
	if s.Digest, s.Size, err = digestOf(f); err != nil {
		return s, err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return s, err
	}
	note, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	if err := writeDurably(filepath.Join(dir, "."+noteFile), filepath.Join(dir, noteFile), note); err != nil {
		return s, err
	}
	return s, syncDir(filepath.Dir(dir))
}

// digestOf reads a whole file.
func digestOf(f *os.File) (string, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), n, err
}

// passing returns a file without a name: nothing of it outlives this process.
func (d *Driver) passing() (*os.File, error) {
	f, err := os.CreateTemp(d.own, ".passing-")
	if err != nil {
		return nil, diskFault(err, "the state folder cannot be written")
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, diskFault(err, "the state folder cannot be written")
	}
	return f, nil
}

// normalise writes an OCI layer from anywhere to w as package layer writes it,
// without what is ours. It goes through a file, because where something stands
// in an archive need not be where it has to stand.
func (d *Driver) normalise(ctx context.Context, r io.Reader, w io.Writer, limit int64) error {
	f, err := d.passing()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := layer.ToUpper(ctx, r, f, layer.Limits{Bytes: limit}); err != nil {
		return err
	}
	return layer.FromUpper(ctx, f, w, layer.Options{Skip: ours})
}

// Export implements driver.Saver.
func (d *Driver) Export(ctx context.Context, dir string, w io.Writer) error {
	if _, err := readSaved(dir); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, layerFile))
	if err != nil {
		return diskFault(err, "the saved layer cannot be read")
	}
	defer f.Close()
	if _, err := io.Copy(w, &contextReader{ctx, f}); err != nil {
		return diskFault(err, "the saved layer cannot be copied")
	}
	return nil
}

// contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, fault.From(err)
	}
	return c.r.Read(b)
}

// Import implements driver.Saver.
func (d *Driver) Import(ctx context.Context, dir string, r io.Reader, limit int64) error {
	_, err := fillSaved(dir, func(f *os.File) error { return d.normalise(ctx, r, f, limit) })
	return err
}

// Discard implements driver.Saver.
func (d *Driver) Discard(ctx context.Context, dir string) error {
	unlock, err := d.layers.lock(ctx, dir)
	if err != nil {
		return fault.From(err)
	}
	defer unlock()
	// First it is no saved layer any more.
	if err := os.Remove(filepath.Join(dir, noteFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskFault(err, "the saved layer cannot be deleted")
	}
	if err := d.removeImagesOf(ctx, dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return diskFault(err, "the saved layer cannot be deleted")
	}
	return nil
}

// saveSupport says how layers are saved.
func (d *Driver) saveSupport(info *system.Info) driver.Support {
	if ok, reason := d.readsFiles(info); !ok {
		return driver.Support{OK: true, Reason: "through the engine, without extended attributes of users and without host directories: " + reason}
	}
	return driver.Support{OK: true, Reason: "read from the engine's own files"}
}
