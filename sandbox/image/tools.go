package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// toolPath is where programs of the system are looked for: never in the PATH
// of whoever started the server.
const toolPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// findTool looks a program up in toolPath.
func findTool(name string) (string, error) {
	if strings.Contains(name, "/") {
		if err := unix.Access(name, unix.X_OK); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(toolPath) {
		path := filepath.Join(dir, name)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// unshareTrouble says why mmdebstrap cannot work for a user who is not root,
// and "" when it can.
func unshareTrouble() string {
	if _, err := findTool("newuidmap"); err != nil {
		return "without root mmdebstrap needs newuidmap (apt-get install uidmap)"
	}
	who, err := user.Current()
	if err != nil {
		return "this process has no user name, which mmdebstrap needs without root"
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		data, err := readBounded(file, maxSourcesBytes)
		if err != nil || !hasRange(data, who.Username, who.Uid) {
			return fmt.Sprintf("without root mmdebstrap needs a range for %s in %s (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s)", who.Username, file, who.Username)
		}
	}
	return ""
}

func hasRange(data []byte, name, uid string) bool {
	for line := range strings.Lines(string(data)) {
		owner, _, ok := strings.Cut(line, ":")
		if ok && (owner == name || owner == uid) {
			return true
		}
	}
	return false
}

// removeAsSubuser deletes a tree that mmdebstrap made as the users of this
// user's range when it had no time to do so itself.
func removeAsSubuser(program, path string) error {
	tool, err := findTool(program)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "--unshare-helper", "find", path, "-mindepth", "1", "-delete")
	cmd.Env = []string{"PATH=" + toolPath, "LC_ALL=C.UTF-8"}
	cmd.Dir = "/"
	return cmd.Run()
}

// hasCapability reports whether this process has a capability.
func hasCapability(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// scratchFor makes the directory mmdebstrap works in. It must be on a disk
// that allows programs and devices, and others must be able to pass through it:
// apt downloads as a user of its own.
func (c *Catalog) scratchFor(b *build) (string, error) {
	candidates := []string{"/var/tmp", os.TempDir(), b.dir}
	if c.cfg.Scratch != "" {
		candidates = []string{c.cfg.Scratch}
	}
	var errs []error
	for _, dir := range candidates {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		if fs.Flags&unix.ST_NOEXEC != 0 || (os.Geteuid() == 0 && fs.Flags&unix.ST_NODEV != 0) {
			errs = append(errs, fmt.Errorf("%s does not allow programs or devices", dir))
			continue
		}
		path, err := b.makeScratch(dir)
		if err == nil {
			return path, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
