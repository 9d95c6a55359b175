package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// box is the directory of one sandbox.
type box struct{ dir string }

func (b box) id() string        { return filepath.Base(b.dir) }
func (b box) lock() string      { return filepath.Join(b.dir, "lock") }
func (b box) record() string    { return filepath.Join(b.dir, "record.json") }
func (b box) life() string      { return filepath.Join(b.dir, "life.json") }
func (b box) plan() string      { return filepath.Join(b.dir, "plan.json") }
func (b box) seed() string      { return filepath.Join(b.dir, "seed") }
func (b box) bundle() string    { return filepath.Join(b.dir, "bundle") }
func (b box) rootfs() string    { return filepath.Join(b.dir, "bundle", "rootfs") }
func (b box) data() string      { return filepath.Join(b.dir, "data") }
func (b box) disk() string      { return filepath.Join(b.dir, "disk.img") }
func (b box) filestore() string { return filepath.Join(b.dir, "filestore") }
func (b box) saved() string     { return filepath.Join(b.dir, "upper.tar") }
func (b box) held() string      { return filepath.Join(b.dir, "held") }
func (b box) image() string     { return filepath.Join(b.dir, "image") }
func (b box) launchLog() string { return filepath.Join(b.dir, "launch.log") }
func (b box) runscLog() string  { return filepath.Join(b.dir, "runsc.log") }
func (b box) panicLog() string  { return filepath.Join(b.dir, "panic.log") }

// imageRecord says that there is a memory image.
func (b box) imageRecord() string { return filepath.Join(b.image(), "image.json") }

// upperDir is the name of the private layer in the data folder.
const upperDir = "upper"

// halfMade ends the names of what Restore makes to take the place of another.
const halfMade = ".new"

// storage says who keeps what a sandbox writes.
type storage string

const (
	hostOverlay storage = "host overlay" // the upper directory of an overlayfs mount
	sentryFile  storage = "sentry file"  // an unlinked file of gVisor, saved by Stop
)

// record is what Create decided, and Resize since. It is written as the last
// step of Create: a directory without it is a leftover.
type record struct {
	Spec    driver.Spec `json:"spec"`
	Storage storage     `json:"storage"`
	Created time.Time   `json:"created"`
}

// life is what happened last.
type life struct {
	// Started is set before the sandbox is launched for the first time.
	Started bool `json:"started"`
	// BootID is the host's boot in which it was last launched.
	BootID string `json:"bootId,omitempty"`
	// Build is the gVisor that it was last launched with.
	Build string `json:"build,omitempty"`
	// Ending is set while a Stop or Remove is under way: the end is wanted.
	Ending bool `json:"ending,omitempty"`
	// Exit is how it ended; nil while it runs and until somebody looked.
	Exit *driver.Exit `json:"exit,omitempty"`
}

func (b box) readRecord() (*record, error) {
	var r record
	if err := readJSON(b.record(), &r); err != nil {
		return nil, err
	}
	if r.Spec.ID != b.id() {
		return nil, fmt.Errorf("the record in %s is about %q", b.dir, r.Spec.ID)
	}
	return &r, nil
}

// readLife returns the zero life for a sandbox that was never started. What a
// crash of the host may have made of the file says nothing but that it was.
func (b box) readLife() life {
	var l life
	switch err := readJSON(b.life(), &l); {
	case err == nil:
		return l
	case errors.Is(err, fs.ErrNotExist):
		return life{}
	}
	return life{Started: true}
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, 4<<20)).Decode(v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces the file at path in one step, as far as other processes
// can see. With durable it is on the disk when writeJSON returns.
func writeJSON(path string, v any, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
