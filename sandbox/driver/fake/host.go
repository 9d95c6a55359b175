package fake

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Host is the machine on which fake sandboxes live. It is safe for concurrent
// use.
type Host struct {
	mu     sync.Mutex
	dir    string // made when first needed
	boxes  map[key]*box
	faults faults
	runs   sync.WaitGroup // watchers of running sandboxes
	closed bool
}

// key names a sandbox: ids of different state folders do not meet.
type key struct{ state, id string }

// NewHost returns a machine without sandboxes.
func NewHost() *Host {
	return &Host{boxes: make(map[key]*box)}
}

// Close ends every sandbox and deletes all files.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	boxes := make([]*box, 0, len(h.boxes))
	for _, b := range h.boxes {
		boxes = append(boxes, b)
	}
	h.mu.Unlock()
	for _, b := range boxes {
		b.die(driver.Exit{})
		b.discardImage()
	}
	h.runs.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		return nil
	}
	return removeTree(h.dir)
}

// Kill ends a sandbox as the sudden death of its PID 1 does.
func (h *Host) Kill(id string) { h.find(id).die(driver.Exit{Reason: "killed"}) }

// OOM ends a sandbox as exceeding its memory limit does.
func (h *Host) OOM(id string) {
	b := h.find(id)
	reason := "out of memory"
	if n := h.Spec(id).Limits.MemoryBytes; n > 0 {
		reason = fmt.Sprintf("out of memory (limit %dMi)", n>>20)
	}
	b.die(driver.Exit{OOM: true, Reason: reason})
}

// DropStreams cuts every open stream into a sandbox, as the loss of its relay
// does. Its processes go on.
func (h *Host) DropStreams(id string) {
	b := h.find(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != nil {
		b.run.dropStreams()
	}
}

// Break turns a sandbox into a leftover that can only be removed.
func (h *Host) Break(id string) {
	b := h.find(id)
	b.die(driver.Exit{})
	b.discardImage()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = true
}

// Dir is the folder in which a sandbox's processes start, its workspace.
func (h *Host) Dir(id string) string { return h.find(id).workspace() }

// Spec is what a sandbox was made from, with the limits it has now.
func (h *Host) Spec(id string) driver.Spec {
	b := h.find(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spec
}

// SetUsage is what the sandbox is said to use from now on.
func (h *Host) SetUsage(id string, u driver.Usage) {
	b := h.find(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usage = u
}

// find returns a sandbox by its id alone. It panics when there is none: a
// test that names another has a mistake.
func (h *Host) find(id string) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, b := range h.boxes {
		if k.id == id {
			return b
		}
	}
	panic(fmt.Sprintf("fake: there is no sandbox %q", id))
}

// folder makes a folder for a sandbox.
func (h *Host) folder(k key) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return "", errors.New("the host is closed")
	}
	if h.dir == "" {
		dir, err := os.MkdirTemp("", "sandgate-fake")
		if err != nil {
			return "", err
		}
		h.dir = dir
	}
	return os.MkdirTemp(h.dir, k.id+"-")
}

// removeTree deletes a folder with whatever modes its directories have.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o700) // the removal below tells what remains
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// processes calls f for every process of this machine whose environment has
// the mark, except for this one.
func processes(mark string, f func(pid int)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+mark+"\x00") {
			f(pid)
		}
	}
}
