package gvisor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

// A server that starts on a full disk must not think that the host cannot keep
// files: it would give up sandboxes that lie there.
func TestCapabilitiesOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("fills a file system of its own: " + needsRoot)
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d, err := New(Config{StateDir: filepath.Join(dir, "gvisor"), Executable: gvisortest.Executable(t)})
	must(t, err)
	defer d.Close()
	if os.WriteFile(filepath.Join(dir, "full"), make([]byte, 2<<20), 0o600) == nil {
		t.Fatal("the disk is not full")
	}
	caps, err := d.Capabilities(t.Context())
	must(t, err)
	if s := caps.Support[driver.FeatureDurableFiles]; !s.OK {
		t.Errorf("durable files: %+v", s)
	}
}
