package docker

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// The private layer of a sandbox lies in the writable layer of its container,
// in a volume for each host directory (hostdirs.go), and, after a restore, in
// the topmost layer of the container's image. Where the engine is on this
// machine and the server is root, it is read where it lies: nothing of it is
// lost on the way, and the sandbox is held still no longer than reading takes.
// Elsewhere the engine is asked for it.

// readsFiles reports whether this process can read and make what containers
// see as files of theirs.
func (d *Driver) readsFiles(info *system.Info) (bool, string) {
	if local, reason := d.isLocal(info); !local {
		return false, reason
	}
	if os.Geteuid() != 0 {
		return false, "the server does not run as root"
	}
	for _, o := range info.SecurityOptions {
		if strings.HasPrefix(o, "name=userns") || strings.HasPrefix(o, "name=rootless") {
			return false, "the docker engine gives containers other user ids than they see"
		}
	}
	return true, ""
}

// writable is the directory of a container's writable layer, "" where it is
// not to be had as files in the form of overlayfs.
func (d *Driver) writable(info *system.Info, o observed) string {
	if ok, _ := d.readsFiles(info); !ok || o.GraphDriver == nil || o.GraphDriver.Name != "overlay2" || !plainOverlays() {
		return ""
	}
	dir := o.GraphDriver.Data["UpperDir"]
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !strings.HasPrefix(dir, filepath.Clean(info.DockerRootDir)+"/") {
		return ""
	}
	if s, err := os.Lstat(dir); err != nil || !s.IsDir() {
		return ""
	}
	return dir
}

// plainOverlays reports whether overlays hold files as they are. Where the
// kernel was told to move directories by reference the engine knows how to
// read them.
func plainOverlays() bool {
	for _, name := range []string{"redirect_dir", "metacopy"} {
		b, err := os.ReadFile("/sys/module/overlay/parameters/" + name)
		if err == nil && strings.TrimSpace(string(b)) == "Y" {
			return false
		}
	}
	return true
}

// uppers returns the directories in which the changes to the host directories
// of a sandbox lie, in the order of the host directories.
func (d *Driver) uppers(ctx context.Context, id string, r record) ([]string, error) {
	var dirs []string
	for i := range r.Rootfs.HostDirs {
		v, err := d.cli.VolumeInspect(ctx, d.volumeName(id, r.Generation, i, "upper"), client.VolumeInspectOptions{})
		if err != nil {
			return nil, d.engineError(ctx, err, "look at a volume")
		}
		dirs = append(dirs, v.Volume.Mountpoint)
	}
	return dirs, nil
}

// covered reports whether a path inside of a sandbox shows another directory
// than the one whose targets are asked about: it is the target of a deeper one
// or lies in it.
func covered(path, in string, dirs []driver.HostDir) bool {
	return slices.ContainsFunc(dirs, func(h driver.HostDir) bool {
		return h.Target != in && below(h.Target, in) && below(path, h.Target)
	})
}

// below reports whether a clean path is dir or in it.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// maxCounted is how many files are counted before the answer is not worth it:
// about a tenth of a second.
const maxCounted = 50_000

// diskUse is the size of a sandbox's private layer on disk, -1 when it is not
// known. Whatever goes wrong here, somebody only wanted to know a number.
func (d *Driver) diskUse(ctx context.Context, id string) int64 {
	info, err := d.knownInfo(ctx)
	if err != nil {
		return -1
	}
	o, err := d.inspect(ctx, id)
	if err != nil {
		return -1
	}
	dir := d.writable(info, o)
	r, ok := d.readRecord(id)
	if dir == "" || !ok {
		return -1
	}
	dirs, err := d.uppers(ctx, id, r)
	if err != nil {
		return -1
	}
	c := counter{ctx: ctx, left: maxCounted, seen: make(map[inode]bool)}
	for _, dir := range append(dirs, dir) {
		if !c.count(dir) {
			return -1
		}
	}
	if r.Generation > 0 {
		s, err := readSaved(d.restored(id, r.Generation))
		if err != nil {
			return -1
		}
		c.bytes += s.Size
	}
	return c.bytes
}

type counter struct {
	ctx   context.Context
	left  int
	bytes int64
	seen  map[inode]bool // of files with several names
}

// count adds the blocks of a tree that a sandbox may be changing, and that
// must not lead anywhere else.
func (c *counter) count(dir string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if c.left--; c.left < 0 || c.ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil // gone meanwhile
		}
		info, err := e.Info()
		if err != nil {
			return nil // the same
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if !info.IsDir() && st.Nlink > 1 {
			key := inode{st.Dev, st.Ino}
			if c.seen[key] {
				return nil
			}
			c.seen[key] = true
		}
		c.bytes += st.Blocks * 512
		return nil
	})
	return err == nil && c.left >= 0 && c.ctx.Err() == nil
}
