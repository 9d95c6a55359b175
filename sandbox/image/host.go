package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// rootDirs are the directories beside /usr that hold programs and libraries.
// Where /usr is merged they are symbolic links into it.
var rootDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// maskedDirs are below /usr but hold settings of this machine, which may be
// secrets (npm keeps tokens there). They are shown empty.
var maskedDirs = []string{"usr/etc", "usr/local/etc"}

// provideHost returns this machine's own programs: a skeleton layer made from
// a white list of /etc, and /usr (with /bin and its like where /usr is not
// merged) as host directories.
//
// What is below /usr is shown as it is. A server that runs as root shows files
// below /usr that only root of the host may read as well; Debian packages keep
// no secrets there, and the two directories for local settings are masked.
func (c *Catalog) provideHost(ctx context.Context, d definition, progress func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	fail := func(err error) (sandbox.Runtime, sandbox.Rootfs, error) {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.From(err).About("runtime")
	}
	if err := c.hostUsable(); err != nil {
		return fail(err)
	}
	l, ok := c.knownSkeleton()
	if !ok {
		var err error
		l, err = c.share(ctx, d.meta.ID, progress, func(ctx context.Context, say func(string)) (Layer, error) {
			return c.makeSkeleton(ctx, d, say)
		})
		if err != nil {
			return fail(err)
		}
	}
	rt := c.describe(d)
	return rt, driver.Rootfs{Layers: []string{l.Path}, Digest: l.Digest, HostDirs: c.hostDirs()}, nil
}

// knownSkeleton returns the present skeleton if it is still what this host
// would give, and keeps it from Remove for a while.
func (c *Catalog) knownSkeleton() (Layer, bool) {
	c.mu.Lock()
	plan, l := c.plan, c.skeleton
	c.mu.Unlock()
	if plan == nil || !plan.unchanged() || !c.layers.hold(l) {
		return Layer{}, false
	}
	return l, true
}

// makeSkeleton returns the skeleton for the host as it is now, and makes it if
// it is not here.
func (c *Catalog) makeSkeleton(ctx context.Context, d definition, say func(string)) (Layer, error) {
	unlock, err := c.layers.lock(ctx, d.meta.ID, func() {
		say("another process is preparing " + d.meta.Name + "; waiting for it")
	})
	if err != nil {
		return Layer{}, err
	}
	defer unlock()
	plan, err := c.planSkeleton()
	if err != nil {
		return Layer{}, fault.Wrap(err, fault.Unavailable, "host:latest cannot be made: the settings of this machine cannot be read")
	}
	var l Layer
	ref := c.layers.reference(d.meta.ID)
	if ref.Fingerprint == plan.fingerprint {
		l, err = c.layers.layer(ref.Digest)
	}
	if l.Digest == "" || err != nil {
		if l, err = c.writeSkeleton(ctx, d, plan); err != nil {
			return Layer{}, c.hostTrouble(ctx, err, d)
		}
	}
	c.layers.hold(l)
	c.mu.Lock()
	c.plan, c.skeleton = plan, l
	c.mu.Unlock()
	return l, nil
}

// writeSkeleton makes the layer of a plan.
func (c *Catalog) writeSkeleton(ctx context.Context, d definition, plan *skeletonPlan) (Layer, error) {
	b, err := c.layers.begin()
	if err != nil {
		return Layer{}, err
	}
	defer b.discard()
	if err := plan.write(b.root, c.cfg.Unprivileged); err != nil {
		return Layer{}, err
	}
	if err := finishRoot(b.root); err != nil {
		return Layer{}, err
	}
	l, err := b.commit(ctx, Layer{Runtime: d.meta.ID, Source: c.hostSource(), MadeAt: c.cfg.Now().UTC()}, false)
	if err != nil {
		return Layer{}, err
	}
	// The first sandbox need not wait for the disk. Until the reference is
	// written nothing relies on the layer after a crash: it would be made
	// again, and commit replaces one that is not what its digest says.
	c.builds.Go(func() {
		err := c.layers.sync()
		if err == nil {
			err = c.layers.point(d.meta.ID, reference{Digest: l.Digest, Fingerprint: plan.fingerprint})
		}
		if err != nil {
			c.cfg.Log.Warn("the host skeleton is not on record and will be made again", "digest", l.Digest, "err", err)
		}
	})
	return l, nil
}

// hostDirs lists what a sandbox sees of the host. The masks come last, as they
// lie over the directory that was shown before them.
func (c *Catalog) hostDirs() []driver.HostDir {
	dirs := []driver.HostDir{{Source: c.hostPath("usr"), Target: "/usr"}}
	for _, name := range rootDirs {
		if isRealDir(c.hostPath(name)) {
			dirs = append(dirs, driver.HostDir{Source: c.hostPath(name), Target: "/" + name})
		}
	}
	for _, name := range maskedDirs {
		if !emptyDir(c.hostPath(name)) {
			dirs = append(dirs, driver.HostDir{Source: c.layers.empty(), Target: "/" + name})
		}
	}
	return dirs
}

// emptyDir reports whether there is nothing to mask: no directory, or nothing
// in it. One that cannot be read needs no mask from this process, but gets one.
func emptyDir(path string) bool {
	if !isRealDir(path) {
		return true
	}
	d, err := os.Open(path)
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(1)
	return len(names) == 0
}

// hostUsable says why this machine's own programs cannot serve as a runtime.
func (c *Catalog) hostUsable() error {
	if isRealDir(c.hostPath("usr")) && c.hostHas("bin/sh") {
		return nil
	}
	return fault.New(fault.Unavailable, "this machine has no programs in /usr and /bin that a sandbox could use")
}

// hostHas reports whether a program is where a sandbox would find it: in /usr
// itself, or in a directory beside it.
func (c *Catalog) hostHas(path string) bool {
	dir := c.hostPath(filepath.Dir(path))
	if !isRealDir(dir) {
		dir = c.hostPath("usr", filepath.Dir(path))
	}
	_, err := os.Lstat(filepath.Join(dir, filepath.Base(path)))
	return err == nil || errors.Is(err, os.ErrPermission)
}

func (c *Catalog) hostSource() string {
	if name := plainLine(c.osRelease()["PRETTY_NAME"]); name != "" {
		return "this host (" + name + ")"
	}
	return "this host"
}
