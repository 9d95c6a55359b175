package image

import (
	"context"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// ProvideDigest implements sandbox.RootfsProvider. The files may be those of a
// runtime this catalog does not know, which came with an archive.
func (c *Catalog) ProvideDigest(ctx context.Context, runtime sandbox.RuntimeRef) (sandbox.Rootfs, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Rootfs{}, fault.From(err)
	}
	l, err := c.layers.layer(runtime.Digest)
	if err != nil || !c.layers.hold(l) {
		return sandbox.Rootfs{}, goneRuntime(err, runtime)
	}
	rootfs := driver.Rootfs{Layers: []string{l.Path}, Digest: l.Digest}
	if c.ofHost(runtime) {
		if err := c.hostUsable(); err != nil {
			return sandbox.Rootfs{}, fault.From(err).About("runtime")
		}
		rootfs.HostDirs = c.hostDirs()
	}
	return rootfs, nil
}

// ofHost reports whether a runtime shows this machine's own programs.
func (c *Catalog) ofHost(runtime sandbox.RuntimeRef) bool {
	for _, d := range c.defs {
		if d.meta.ID == runtime.ID {
			return d.host
		}
	}
	return false
}

func goneRuntime(cause error, runtime sandbox.RuntimeRef) error {
	return fault.Wrap(cause, fault.Unavailable,
		"the files of %s that this was made on (%.19s…) are not on this server any more; import an archive of the snapshot, which brings them, or make it anew",
		runtime.Name, runtime.Digest).About("runtime")
}
