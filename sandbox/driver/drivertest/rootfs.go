package drivertest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// issue is the content of /etc/issue in the test root filesystem.
const issue = "drivertest"

// BusyboxRootfs makes a root filesystem of one layer out of a static busybox:
// a shell and the usual programs, users root, user (1000) and nobody. It skips
// the test where no static busybox is installed. The layer goes with the test.
func BusyboxRootfs(t testing.TB) driver.Rootfs {
	t.Helper()
	return driver.Rootfs{Layers: []string{BusyboxLayer(t)}, Digest: randomDigest()}
}

// BusyboxLayer makes the layer of BusyboxRootfs.
func BusyboxLayer(t testing.TB) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("there is no busybox here; the Debian package busybox-static has one")
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Skipf("busybox cannot list its programs: %v", err)
	}
	parent, err := os.MkdirTemp("", "sgt-rootfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "layer")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{
		"": 0o755, "bin": 0o755, "dev": 0o755, "etc": 0o755, "home": 0o755, "home/user": 0o755, "mnt": 0o755,
		"proc": 0o755, "root": 0o700, "run": 0o755, "sys": 0o755, "tmp": 0o777 | os.ModeSticky, "usr": 0o755, "var": 0o755,
	} {
		must(os.MkdirAll(filepath.Join(dir, name), 0o755))
		must(os.Chmod(filepath.Join(dir, name), mode))
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\nextra:x:1001:user\nnogroup:x:65534:\n",
		"etc/issue":  issue + "\n",
	} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for _, name := range []string{"etc/shadow", "root/secret"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("root:*:::::::\n"), 0o600))
	}
	if os.Geteuid() == 0 {
		must(os.Lchown(filepath.Join(dir, "home/user"), 1000, 1000))
	}
	must(copyProgram(busybox, filepath.Join(dir, "bin/busybox")))
	for applet := range strings.Lines(string(applets)) {
		if applet = strings.TrimSpace(applet); applet != "busybox" {
			must(os.Symlink("busybox", filepath.Join(dir, "bin", applet)))
		}
	}
	return dir
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}
