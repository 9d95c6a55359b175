package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// record is the file that the driver keeps of a sandbox. It says which
// container is the sandbox, so that replacing one by another is one rename,
// and of what it is made.
type record struct {
	// Generation counts the restores. Each has a container of its own.
	Generation int           `json:"generation,omitempty"`
	Exit       *driver.Exit  `json:"exit,omitempty"` // how an earlier generation ended that had been started
	Rootfs     driver.Rootfs `json:"rootfs"`
	Guest      string        `json:"guest"` // path of the program
	Network    bool          `json:"network,omitempty"`
	DiskBytes  int64         `json:"diskBytes,omitempty"`
}

// maxRecord bounds what is read of a record.
const maxRecord = 16 << 20

func (d *Driver) record(id string) string { return filepath.Join(d.dir, id) }

// readRecord returns the record of a sandbox, and whether there is one. One of
// an earlier version is empty.
func (d *Driver) readRecord(id string) (record, bool) {
	var r record
	f, err := os.Open(d.record(id))
	if err != nil {
		return r, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{}, false
	}
	return r, true
}

// claim takes the id, for this process and for any other on the folder.
func (d *Driver) claim(id string, r record) error {
	f, err := os.OpenFile(d.record(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.Exists, "sandbox %s exists", id).About("sandbox")
	case err != nil:
		return diskFault(err, "the state folder cannot be written")
	}
	err = json.NewEncoder(f).Encode(r)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // the other error says more
		return diskFault(err, "the state folder cannot be written")
	}
	return nil
}

// replaceRecord changes a record, durably, all of it or nothing. The new file
// has a name that no sandbox can have.
func (d *Driver) replaceRecord(id string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := writeDurably(d.passingRecord(id), d.record(id), b); err != nil {
		return diskFault(err, "the state folder cannot be written")
	}
	return nil
}

func (d *Driver) passingRecord(id string) string { return filepath.Join(d.dir, "."+id) }

// writeDurably writes a file under a passing name and gives it its own.
func writeDurably(passing, name string, content []byte) error {
	f, err := os.OpenFile(passing, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(passing, name)
	}
	if err != nil {
		_ = os.Remove(passing) // the other error says more
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// container is the name of a sandbox's container.
func (d *Driver) container(id string) string {
	r, _ := d.readRecord(id) // without one it is the first
	return d.containerOf(id, r.Generation)
}

// containerOf is the name of the container of a generation. No id has a dot.
func (d *Driver) containerOf(id string, generation int) string {
	return "sandgate-" + d.state + "-" + id + suffix(generation)
}

// restored is the directory of the layer that a generation was restored from.
func (d *Driver) restored(id string, generation int) string {
	return filepath.Join(d.own, id+suffix(generation))
}

func suffix(generation int) string {
	if generation == 0 {
		return ""
	}
	return "." + strconv.Itoa(generation)
}
