package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// State exposes the label of what a driver's state folder owns.
func (d *Driver) State() string { return d.state }

// LeaveHeld holds a sandbox still as a server does that dies right then. What
// it returns lets the sandbox go, if nobody else has.
func LeaveHeld(closed *Driver, id string) (func(), error) {
	d, err := New(Config{StateDir: stateDirOf(closed)})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	o, err := d.inspect(context.Background(), id)
	if err != nil {
		return nil, err
	}
	z, ok := freezerOf(o.State.Pid, o.ID)
	if !ok {
		return nil, errors.New("the container has no freezer")
	}
	if err := os.WriteFile(d.mark(id), []byte(z.file), 0o600); err != nil {
		return nil, err
	}
	return func() { _ = z.release() }, z.freeze(context.Background())
}

func stateDirOf(d *Driver) string { return filepath.Dir(d.dir) }
