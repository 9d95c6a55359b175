package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// countPatience is how long somebody who asks waits for files to be
	// counted; what was counted before is the answer then.
	countPatience = 100 * time.Millisecond
	// countAge is how old a count may be that is not made again.
	countAge = 2 * time.Second
	// countTimeout bounds a count.
	countTimeout = time.Minute
)

// diskUses remembers how much the files of sandboxes take, where that has to
// be counted.
type diskUses struct {
	mu   sync.Mutex
	byID map[string]*diskCount
}

type diskCount struct {
	bytes int64 // -1 until the first count
	at    time.Time
	done  chan struct{} // of the count under way, else nil
}

// diskUse is what the private layer takes on the host's disk: what is
// allocated of a disk image or of gVisor's own file, else a count of files.
func (d *Driver) diskUse(ctx context.Context, b box, r *record) int64 {
	switch {
	case r.Storage == sentryFile:
		return d.filestoreUse(b)
	case r.Spec.Limits.DiskBytes > 0:
		return allocated(b.disk())
	}
	d.disks.mu.Lock()
	if d.disks.byID == nil {
		d.disks.byID = make(map[string]*diskCount)
	}
	c := d.disks.byID[b.id()]
	if c == nil {
		c = &diskCount{bytes: -1}
		d.disks.byID[b.id()] = c
	}
	if c.done == nil && d.now().Sub(c.at) > countAge {
		c.done = make(chan struct{})
		d.startCount(b, c)
	}
	done := c.done
	d.disks.mu.Unlock()
	if done != nil {
		patience := time.NewTimer(countPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	d.disks.mu.Lock()
	defer d.disks.mu.Unlock()
	return c.bytes
}

// startCount counts in the background. A driver that is closed counts nothing.
func (d *Driver) startCount(b box, c *diskCount) {
	started := d.background(func() {
		ctx, cancel := context.WithTimeout(d.ctx, countTimeout)
		defer cancel()
		n, err := countFiles(ctx, b.data())
		d.disks.mu.Lock()
		defer d.disks.mu.Unlock()
		if err == nil {
			c.bytes = n
		}
		c.at = d.now()
		close(c.done)
		c.done = nil
	})
	if !started {
		close(c.done)
		c.done = nil
	}
}

// forget drops what is remembered of a sandbox.
func (u *diskUses) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byID, id)
}

// countFiles sums up what the files of a tree take on the disk.
func countFiles(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // deleted meanwhile
			}
			return err
		}
		if info, err := e.Info(); err == nil {
			total += blocks(info)
		}
		return ctx.Err()
	})
	return total, err
}

// blocks is what a file takes on the disk.
func blocks(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return st.Blocks * 512
}

// filestoreUse is what gVisor's own file takes. It has no name any more, so it
// is found among the open files of the sandbox's kernel.
func (d *Driver) filestoreUse(b box) int64 {
	p := d.sentry(b.id())
	if p == nil {
		return -1
	}
	defer p.close()
	dir := filepath.Join("/proc", strconv.Itoa(p.pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, b.filestore()+"/") {
			if info, err := os.Stat(name); err == nil {
				return blocks(info)
			}
		}
	}
	return -1
}

// allocated is what a file takes on the disk, -1 if that is not known.
func allocated(name string) int64 {
	info, err := os.Lstat(name)
	if err != nil {
		return -1
	}
	return blocks(info)
}
