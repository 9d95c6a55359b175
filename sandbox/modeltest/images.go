package modeltest

import (
	"context"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// RuntimeName is the one runtime of Images.
const RuntimeName = "tiny:1"

// Images provides one root filesystem as the runtime RuntimeName.
type Images struct{ Rootfs sandbox.Rootfs }

// Runtimes implements sandbox.RootfsProvider.
func (Images) Runtimes(context.Context) ([]sandbox.Runtime, error) {
	return []sandbox.Runtime{{ID: "srt_tiny", Name: RuntimeName, Ready: true}}, nil
}

// Provide implements sandbox.RootfsProvider.
func (i Images) Provide(_ context.Context, name string, _ func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if name != RuntimeName {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.New(fault.NotFound, "there is no runtime %q", name).About("runtime")
	}
	return sandbox.Runtime{ID: "srt_tiny", Name: RuntimeName}, i.Rootfs, nil
}

// ProvideDigest implements sandbox.RootfsProvider.
func (i Images) ProvideDigest(context.Context, sandbox.RuntimeRef) (sandbox.Rootfs, error) {
	return i.Rootfs, nil
}
