package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// On its own machine the server holds a container still through the kernel, as
// the engine would, and in a few milliseconds. The engine is not asked: what it
// believes of a pause lags behind, and what it starts meanwhile just waits.

// freezer is the file that holds all processes of a container still.
type freezer struct {
	file         string
	frozen, thaw string // what is written
	state        string // the file that tells …
	is           string // … and what it then contains
}

// freezerOf finds the freezer of a container, by the cgroup of its first
// process; false where there is none that is certainly the container's.
func freezerOf(pid int, container string) (freezer, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || container == "" {
		return freezer{}, false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !strings.Contains(f[2], container) || strings.Contains(f[2], "..") {
			continue
		}
		var z freezer
		switch f[1] {
		case "freezer":
			z = freezerV1(filepath.Join("/sys/fs/cgroup/freezer", f[2]))
		case "":
			z = freezerV2(filepath.Join("/sys/fs/cgroup", f[2]))
		default:
			continue
		}
		if _, err := os.Stat(z.file); err == nil {
			return z, true
		}
	}
	return freezer{}, false
}

func freezerV1(dir string) freezer {
	file := filepath.Join(dir, "freezer.state")
	return freezer{file: file, frozen: "FROZEN", thaw: "THAWED", state: file, is: "FROZEN"}
}

func freezerV2(dir string) freezer {
	return freezer{file: filepath.Join(dir, "cgroup.freeze"), frozen: "1", thaw: "0", state: filepath.Join(dir, "cgroup.events"), is: "frozen 1"}
}

// How long the kernel may take to stop all processes, and after how many
// looks it is asked anew: one that was caught in the middle of making another
// may stand in the way of both, until they have had a moment to go on.
const (
	freezeWithin = 5 * time.Second
	freezeLooks  = 20
)

// freeze returns when no process runs.
func (z freezer) freeze(ctx context.Context) error {
	for began := time.Now(); ; {
		if err := os.WriteFile(z.file, []byte(z.frozen), 0); err != nil {
			return err
		}
		for range freezeLooks {
			b, err := os.ReadFile(z.state)
			if err != nil || strings.Contains(string(b), z.is) {
				return err
			}
			<-time.After(100 * time.Microsecond)
		}
		if ctx.Err() != nil || time.Since(began) > freezeWithin {
			return errors.Join(errors.New("the processes do not stop"), ctx.Err())
		}
		if err := z.release(); err != nil {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// release lets all processes go on. A freezer that is gone holds nobody.
func (z freezer) release() error {
	err := os.WriteFile(z.file, []byte(z.thaw), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// A mark in the state folder says which freezer is in use, so that the next
// server lets go what a crash has left.

const markPrefix = ".held-"

func (d *Driver) mark(id string) string { return filepath.Join(d.own, markPrefix+id) }

// held calls read while a freezer holds a sandbox.
func (d *Driver) held(ctx context.Context, id string, z freezer, read func() error) error {
	if err := os.WriteFile(d.mark(id), []byte(z.file), 0o600); err != nil {
		return diskFault(err, "the state folder cannot be written")
	}
	err := z.freeze(ctx)
	if err != nil {
		err = d.engineError(ctx, err, "hold the sandbox still")
	} else {
		err = read()
	}
	if rerr := z.release(); rerr != nil {
		d.log.Error("a sandbox is held still and cannot be let go", "sandbox", id, "error", rerr)
		return errors.Join(err, diskFault(rerr, "the sandbox is held still"))
	}
	if rerr := os.Remove(d.mark(id)); rerr != nil {
		d.log.Warn("a mark is left over", "sandbox", id, "error", rerr)
	}
	return err
}

// releaseAll lets go whatever an earlier server held when it died.
func (d *Driver) releaseAll() {
	marks, err := filepath.Glob(filepath.Join(d.own, markPrefix+"*"))
	if err != nil {
		return // the pattern is ours
	}
	for _, mark := range marks {
		b, err := os.ReadFile(mark)
		file := strings.TrimSpace(string(b))
		dir := filepath.Dir(file)
		z := freezerV1(dir)
		if filepath.Base(file) == "cgroup.freeze" {
			z = freezerV2(dir)
		}
		if err == nil && z.file == file && strings.HasPrefix(file, "/sys/fs/cgroup/") {
			err = z.release()
		}
		if err = errors.Join(err, os.Remove(mark)); err != nil {
			d.log.Error("a sandbox may be held still", "mark", mark, "error", err)
		}
	}
}
