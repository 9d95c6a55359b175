package image

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// needDebian skips a test where Debian cannot be bootstrapped for real.
func needDebian(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("bootstraps Debian, which takes a quarter of a minute: left out by -short")
	}
	_, err := findTool("mmdebstrap")
	need(t, "mmdebstrap", err == nil, "it is not installed (apt-get install mmdebstrap)")
	c := newCatalog(t, Config{})
	base, _ := c.mirrors(c.hostApt(context.Background()))
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(base + "/dists/stable/InRelease")
	if err == nil {
		resp.Body.Close()
	}
	need(t, "mmdebstrap", err == nil && resp.StatusCode == http.StatusOK, "the mirror "+base+" does not answer")
}

// checkDebian checks that a root filesystem is a Debian that is fit for use.
func checkDebian(t *testing.T, c *Catalog, rt sandbox.Runtime, rootfs sandbox.Rootfs) map[string]string {
	t.Helper()
	if !strings.HasPrefix(rt.Source, "debian bootstrap ") || !rt.Ready {
		t.Errorf("runtime = %+v", rt)
	}
	root := rootfs.Layers[0]
	got := tree(t, root)
	for _, path := range []string{"usr/bin/bash", "usr/bin/apt", "usr/bin/curl", "usr/bin/ps", "etc/ssl/certs/ca-certificates.crt", "etc/services", "tmp/.keep", "workspace"} {
		if _, ok := got[path]; !ok {
			t.Errorf("%s is missing", path)
		}
	}
	for _, path := range []string{"etc/hostname", "etc/resolv.conf"} {
		if got[path] != "" {
			t.Errorf("%s tells about this machine: %q", path, got[path])
		}
	}
	if codename := strings.TrimPrefix(rt.Source, "debian bootstrap "); !strings.Contains(got["usr/lib/os-release"], "VERSION_CODENAME="+codename) {
		t.Errorf("os-release = %q, source %q", got["usr/lib/os-release"], rt.Source)
	}
	if !strings.Contains(got["etc/apt/sources.list"], "-security main") {
		t.Errorf("there are no security updates in sources.list: %q", got["etc/apt/sources.list"])
	}
	if err := c.Verify(context.Background(), rootfs.Digest); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if _, again, err := c.Provide(context.Background(), "base", nil); err != nil || again.Digest != rootfs.Digest {
		t.Errorf("the second Provide gave %+v, %v", again, err)
	}
	t.Logf("the second Provide took %s", time.Since(began))
	layers, err := c.Layers(context.Background())
	if err != nil || len(layers) != 1 {
		t.Fatalf("Layers = %+v, %v", layers, err)
	}
	t.Logf("%s: %s in %d files", rt.Source, size(layers[0].Size), layers[0].Files)
	return got
}

func TestDebianForReal(t *testing.T) {
	needDebian(t)
	need(t, "root", os.Geteuid() == 0, "another test covers other users")
	t.Parallel()
	c := newCatalog(t, Config{Mmdebstrap: "mmdebstrap"})
	began := time.Now()
	rt, rootfs, err := c.Provide(context.Background(), "base:latest", func(line string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), line) })
	if err != nil {
		t.Fatal(err)
	}
	checkDebian(t, c, rt, rootfs)
	root := rootfs.Layers[0]
	if fi, err := os.Stat(filepath.Join(root, "usr/bin/su")); err != nil || fi.Mode()&os.ModeSetuid == 0 || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("su is not set-user-id root: %v, %v", fi, err)
	}
	// It works as a system: in a copy, as nothing may write to the layer.
	copied := filepath.Join(t.TempDir(), "root")
	if out, err := exec.Command("cp", "-a", root, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command("/bin/bash", "-lc", "dpkg --audit && apt-config dump >/dev/null && curl --version >/dev/null && id -un _apt && perl -e 'print 6*7'")
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + toolPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: copied}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "_apt\n42" {
		t.Errorf("in the new root: %v\n%s", err, out)
	}
}

// An ordinary user with a range of ids gets the same, owned by themselves.
func TestDebianForAnOrdinaryUser(t *testing.T) {
	if os.Getenv(runAsNobody) != "" || os.Geteuid() != 0 {
		needDebian(t)
		why := unshareTrouble()
		need(t, "subuid", why == "", why)
		c := newCatalog(t, Config{Mmdebstrap: "mmdebstrap"})
		rt, rootfs, err := c.Provide(context.Background(), "base:latest", nil)
		if err != nil {
			t.Fatalf("%v (%v)", err, errors.Unwrap(err))
		}
		got := checkDebian(t, c, rt, rootfs)
		for path := range got {
			fi, err := os.Lstat(filepath.Join(rootfs.Layers[0], path))
			if err != nil || int(fi.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
				t.Fatalf("%s is not this user's: %v", path, err)
			}
		}
		sweepsForeignFiles(t, c)
		return
	}
	needDebian(t)
	_, err := findTool("newuidmap")
	need(t, "subuid", err == nil, "newuidmap is not installed (apt-get install uidmap)")
	t.Parallel()
	// In a mount namespace of its own, nobody gets a range of ids.
	dir := publicDir(t)
	ranges := filepath.Join(dir, "ranges")
	if err := os.WriteFile(ranges, []byte("nobody:100000:65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `for f in /etc/subuid /etc/subgid; do test -e $f && mount --bind ` + ranges + ` $f || exit 77; done
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", publicTestBinary(t), "-test.run=^TestDebianForAnOrdinaryUser$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + toolPath, runAsNobody + "=1", "TMPDIR=" + dir, "SANDGATE_TEST_REQUIRE=" + os.Getenv("SANDGATE_TEST_REQUIRE")}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 77 {
		need(t, "subuid", false, "no ranges can be mounted here")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go") {
			t.Log(strings.TrimSpace(line))
		}
		if strings.Contains(line, "SKIP") {
			t.Skip(string(out))
		}
	}
}

// sweepsForeignFiles checks that what a killed bootstrap left as other users of
// this user's range can be removed, though this user may not even look at it.
func sweepsForeignFiles(t *testing.T, c *Catalog) {
	t.Helper()
	dir := publicDir(t)
	left := filepath.Join(dir, scratchPrefix+"x")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(left, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("mmdebstrap", "--unshare-helper", "sh", "-c", "mkdir -p "+left+"/a/b && touch "+left+"/a/b/c && chmod 700 "+left+"/a")
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + toolPath}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(left); err == nil {
		t.Fatal("the files are not foreign")
	}
	if err := c.layers.removeTree(left); err != nil {
		t.Error(err)
	}
	if exists(left) {
		t.Error("foreign files were left")
	}
}
